"""RIMs that each read an element of their own."""

import pytest
import torch

from rims_rl import RIM
from rims_rl.core.rims.engines.choose import ENGINES


def make(**options):
    torch.manual_seed(0)
    rim = RIM(5, 12, 4, 2, own_elements=True, **options).double()
    return rim, torch.randn(6, 3, 4, 5).double()


@pytest.mark.parametrize("options", [{}, {"input_heads": 2}, {"cell": "gru"}])
def test_a_rim_sees_its_own_element_only(options):
    rim, x = make(communication=False, **options)
    with rim.trace() as trace:
        output, _ = rim(x)
    attention = trace.input_attention[..., :4]
    assert (attention[..., ~torch.eye(4).bool()] == 0).all() and (attention.diagonal(dim1=-2, dim2=-1) > 0).all()
    changed = x.clone()
    changed[:, :, 1] = 0
    with rim.trace() as other_trace:
        other, _ = rim(changed)
    first = (trace.active != other_trace.active).any(-1).int().argmax(0).min()  # until then, the same RIMs are active
    same = slice(0, max(1, int(first)))
    other, output = (each[same].unflatten(-1, (4, 3)) for each in (other, output))
    assert torch.equal(other[..., [0, 2, 3], :], output[..., [0, 2, 3], :])
    assert not torch.equal(other[..., 1, :], output[..., 1, :])


@pytest.mark.parametrize("options", [{}, {"input_heads": 2}, {"position_competition": True}, {"cell": "gru"}])
def test_the_fast_scan_and_its_gradients_are_those_of_the_readable_one(options):
    rim, x = make(**options)
    x.requires_grad_()
    zeros = torch.zeros(3, 12).double()
    weights = [x, *rim.parameters()]
    found = []
    for output in (rim(x)[0], ENGINES["readable"].run(rim.layers[0], x, zeros, zeros)[0]):
        found.append((output, *torch.autograd.grad(output.square().sum(), weights)))
    for fast, readable in zip(*found, strict=True):
        torch.testing.assert_close(fast, readable, rtol=0, atol=1e-12)


def test_those_that_are_left_keep_their_own_elements():
    rim, x = make(communication=False)
    with rim.drop(0, 2):
        before = rim(x)[0]
        changed = x.clone()
        changed[:, :, [0, 2]] = 0
        assert torch.equal(before, rim(changed)[0]) and before.abs().sum() > 0


def test_too_few_elements_are_named():
    rim, x = make()
    with pytest.raises(ValueError, match="own_elements needs an element for each RIM, got 3 elements"):
        rim(x[:, :, :3])
    with pytest.raises(ValueError, match="own_elements must be False without input_attention"):
        make(input_attention=False)
