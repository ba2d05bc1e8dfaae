"""The loops in C: tests/core/test_rim.py holds them to the equations; here is what is special about them."""

import pytest
import torch

from rims_rl import RIM
from rims_rl.core import native


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Compiled anew, into an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native.library.cache_clear()
    yield monkeypatch, tmp_path / "rims-rl"
    monkeypatch.undo()
    native.library.cache_clear()


def run(rim, x, starts=None):
    """Outputs and all gradients."""
    rim.zero_grad()
    torch.manual_seed(1)  # of dropout
    x = x.clone().requires_grad_()
    output, (h, c) = rim(x, episode_starts=starts)
    (output.square().sum() + h.sum() + c.sum()).backward()
    return [output.detach(), c.detach(), x.grad, *(p.grad.clone() for p in rim.parameters())]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"input_heads": 2, "input_value_size": 34},
        {"input_attention": False},
        {"communication": False},
        {"input_dropout": 0.2, "comm_dropout": 0.3},
    ],
)
@pytest.mark.parametrize("elements", [1, 3])
def test_float32_is_as_in_torch_for_sizes_that_are_no_multiples_of_a_vector(monkeypatch, options, elements):
    torch.manual_seed(0)
    rim = RIM(10, 7 * 19, 7, 3, comm_heads=3, comm_key_size=17, comm_value_size=5, **options)
    x, starts = torch.randn(9, 300, elements, 10), torch.rand(9, 300) < 0.2  # more rows than one piece has
    ours = run(rim, x, starts)
    monkeypatch.setattr(native, "usable", lambda *_: False)
    for a, b in zip(ours, run(rim, x, starts), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-4)


def test_a_row_does_not_depend_on_the_rows_beside_it_nor_on_the_number_of_threads():
    rim = RIM(10, 60, 6, 4, input_heads=2)
    x = torch.randn(20, 13, 2, 10)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        whole = rim(x)[0]
        torch.set_num_threads(1)
        assert torch.equal(rim(x)[0], whole)
        assert torch.equal(rim(x[:, 4:7])[0], whole[:, 4:7])
    finally:
        torch.set_num_threads(threads)


def test_what_is_not_a_number_stays_so():
    rim, x = RIM(10, 60, 6, 4), torch.randn(5, 3, 10)
    x[2, 1] = torch.nan
    output = rim(x)[0]
    assert output[2:, 1].isnan().any() and output[:2].isfinite().all() and output[:, [0, 2]].isfinite().all()


def test_large_numbers_saturate_as_they_do_in_torch(monkeypatch):
    rim, x = RIM(10, 60, 6, 4), torch.randn(5, 3, 10) * 1e4
    ours = rim(x)[0]
    monkeypatch.setattr(native, "usable", lambda *_: False)
    torch.testing.assert_close(ours, rim(x)[0], rtol=1e-4, atol=1e-4)


def test_they_are_compiled_once_and_kept(fresh):
    _, folder = fresh
    assert native.library(torch.float32) is not None
    (built,) = folder.iterdir()
    before = built.stat().st_mtime_ns
    native.library.cache_clear()
    assert native.library(torch.float32) is not None
    assert [file.stat().st_mtime_ns for file in folder.iterdir()] == [before]


@pytest.mark.parametrize(
    "name, value", [("CC", "no-such-compiler"), ("CC", "false"), ("CC", ""), ("RIMS_RL_NATIVE", "0")]
)
def test_without_a_compiler_or_unwanted_the_layer_works_all_the_same(fresh, name, value):
    monkeypatch, _ = fresh
    monkeypatch.setenv(name, value)
    assert native.library(torch.float32) is None
    output, _ = RIM(10, 60, 6, 4)(torch.randn(5, 3, 10))
    assert output.shape == (5, 3, 60)


@pytest.mark.parametrize("options", [{}, {"input_heads": 2}, {"communication": False}, {"num_active": 6}])
@pytest.mark.parametrize("elements", [1, 3])
def test_steps_with_weights_at_rest_are_the_same_and_changed_weights_are_noticed(options, elements):
    torch.manual_seed(0)
    rim = RIM(10, 60, **{"num_rims": 6, "num_active": 4, "num_layers": 2, **options})
    other = RIM(10, 60, **{"num_rims": 6, "num_active": 4, "num_layers": 2, **options})
    optimizer = torch.optim.Adam(rim.parameters(), lr=0.1)

    def steps():
        """Some with resets, with another batch size, with a RIM dropped, and with weights that have changed."""
        rim.load_state_dict(start)
        outputs, state = [], None
        for t in range(12):
            with torch.no_grad():
                output, state = rim(x[t : t + 1], state, starts[t : t + 1] if t % 2 else None)
            outputs.append(output)
            if t == 3:
                outputs.append(rim(x[:1, :2])[0].detach())
            if t == 5:
                with rim.drop(1), torch.no_grad():
                    outputs.append(rim(x[:1])[0])
            if t == 7:
                rim(x)[0].sum().backward()
                optimizer.step()
            if t == 9:
                rim.load_state_dict(other.state_dict())
        return outputs

    start = {name: weight.clone() for name, weight in rim.state_dict().items()}
    x, starts = torch.randn(12, 5, elements, 10), torch.rand(12, 5) < 0.3
    expected = steps()
    optimizer = torch.optim.Adam(rim.parameters(), lr=0.1)
    rim.zero_grad()
    with native.weights_at_rest():
        assert [torch.equal(a, b) for a, b in zip(steps(), expected, strict=True)] == [True] * 14
    assert native._at_rest is None
