"""Who was active once, replayed: the choice of others takes the place of a competition."""

import pytest
import torch

from rims_rl import RIM, RIMCell
from rims_rl.core import make_core, weights_at_rest
from tests.helpers.engines import in_every_engine

CASES = [{}, {"input_heads": 2}, {"cell": "gru"}, {"communication": "gated"}, {"activation": "at_most"}]


def make(engine="auto", **options):
    torch.manual_seed(0)
    rim = RIM(5, 18, 6, 3, num_layers=2, engine=engine, dtype=torch.float64, **options)
    x = torch.randn(7, 3, 2, 5, dtype=torch.float64, requires_grad=True)
    return rim, x, torch.rand(7, 3) < 0.2


def gradients(output, rim, x):
    return torch.autograd.grad(output.sum(), [x, *rim.parameters()], allow_unused=True, materialize_grads=True)


@pytest.mark.filterwarnings("ignore:engine")
@pytest.mark.parametrize("options", CASES, ids=str)
@in_every_engine
def test_replaying_what_happened_changes_nothing(engine, options):
    rim, x, starts = make(engine, **options)
    with rim.trace() as trace:
        output, _ = rim(x, None, starts)
    with rim.replay(torch.stack([layer.active for layer in trace.layers])):
        again, _ = rim(x, None, starts)
    assert torch.equal(output, again)
    for a, b in zip(gradients(output, rim, x), gradients(again, rim, x), strict=True):
        assert torch.equal(a, b)


@pytest.mark.filterwarnings("ignore:engine")
@pytest.mark.parametrize("options", CASES, ids=str)
@in_every_engine
def test_any_choice_can_be_replayed_and_all_engines_agree(engine, options):
    active = torch.rand(2, 7, 3, 6, generator=torch.Generator().manual_seed(1)) < 0.5
    found = []
    for name in (engine, "readable"):
        rim, x, starts = make(name, **options)
        with rim.replay(active), rim.trace() as trace:
            output, _ = rim(x, None, starts)
        assert torch.equal(torch.stack([layer.active for layer in trace.layers]), active)
        found.append([output, *gradients(output, rim, x)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore:engine")
@pytest.mark.parametrize("at_rest", [True, False])
@in_every_engine
def test_a_trace_of_activity_alone_sees_the_same_in_single_steps_and_in_sequences(engine, at_rest):
    rim, x, starts = make(engine)
    with torch.no_grad(), rim.trace() as whole:
        rim(x, None, starts)
    state = None
    with torch.no_grad(), rim.trace(only_active=True) as steps:
        for t in range(len(x)):
            if at_rest:
                with weights_at_rest(rim):
                    _, state = rim(x[t : t + 1], state, starts[t : t + 1])
            else:
                _, state = rim(x[t : t + 1], state, starts[t : t + 1])
    for one, other in zip(whole.layers, steps.layers, strict=True):
        assert torch.equal(one.active, other.active)
    with torch.no_grad(), rim.drop(1), rim.trace() as whole, rim.trace(only_active=True) as light:
        rim(x)
    assert torch.equal(whole.active, light.active) and not light.active[..., 1].any()


def test_activity_of_another_size_is_one_sentence():
    rim, x, _ = make()
    other, fitting = (torch.ones(2, steps, 3, 6, dtype=torch.bool) for steps in (6, 7))
    sentence = r"active must be \(2, 7, 3, 6\) to be replayed here, got \(2, 6, 3, 6\)"
    with pytest.raises(ValueError, match=sentence), rim.replay(other):
        rim(x)
    sentence = "cannot be dropped or forced while others' activity is replayed"
    with pytest.raises(ValueError, match=sentence), rim.replay(fitting), rim.drop(0):
        rim(x)


@pytest.mark.parametrize("core", ["scoff", "brims", "rims-workspace"])
def test_the_family_can_be_replayed_too(core):
    torch.manual_seed(0)
    rim, x, starts = make_core(core, 5, 18, 6, 3, None), torch.randn(4, 3, 2, 5), torch.rand(4, 3) < 0.3
    with rim.trace() as trace:
        output, _ = rim(x, None, starts)
    with rim.replay(torch.stack([layer.active for layer in trace.layers])):
        assert torch.equal(rim(x, None, starts)[0], output)
    other = torch.rand(rim.num_layers, 4, 3, 6) < 0.5
    with rim.replay(other), rim.trace(only_active=True) as trace:
        changed, _ = rim(x, None, starts)
    assert torch.equal(torch.stack([layer.active for layer in trace.layers]), other) and not torch.equal(
        changed, output
    )


def test_a_step_of_ones_own_is_not_replayed_in_silence():
    class Mine(RIMCell):
        def step(self, x, h, c):
            return super().step(x, h, c)

    rim = RIM(5, 18, 6, 3, cell_class=Mine)
    with pytest.raises(ValueError, match="Mine has a step of its own"), rim.replay(torch.ones(1, 1, 1, 6)):
        pass
