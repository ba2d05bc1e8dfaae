"""What tasks with frames share."""

import pytest
import torch
import torch.nn.functional as F

from rims_rl.supervised.frame_networks import Grow


@pytest.mark.parametrize("outputs", [1, 3])
def test_growing_is_four_of_each_pixel_and_then_a_convolution(outputs):
    torch.manual_seed(0)
    grow = Grow(2, outputs).double()
    x = torch.randn(5, 2, 4, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(5, outputs, 8, 12, dtype=torch.float64)
    slow = F.conv2d(F.pad(F.interpolate(x, scale_factor=2), (1, 2, 1, 2)), grow.weight, grow.bias)
    fast = grow(x)
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
    of = [x, grow.weight, grow.bias]
    for a, b in zip(*(torch.autograd.grad((y * weights).sum(), of) for y in (fast, slow)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)
