"""Options of the mechanism, each alone and all together, against a slow transcription of their equations."""

import pickle

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rims_rl import RIM
from rims_rl.core import engine_of
from rims_rl.core.rims.engines.c_struct import loops_here
from tests.helpers import paper_equations

OPTIONS = [
    {"communication": "gated"},
    {"start": "learned"},
    {"initialization": "released"},
    {"hear": "updates"},
    {"asleep": "drift"},
    {"asleep": "listen"},
    {"asleep": "half-listen"},
    {"activation": "at_most"},
    {"activation": "at_most", "null_bound": 0.3},
    {"balance": 0.1},
    {"selection": "straight-through"},
    {"selection": "soft"},
    {"competition": "rims"},
]


@st.composite
def layers(draw, options=None):
    """A small RIM in float64 with large random weights, an input, a state and episode starts."""
    torch.manual_seed(draw(st.integers(0, 2**31)))
    num_rims, rim_size, heads = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    if options is None:
        options = {}
        for choice in draw(st.lists(st.sampled_from(OPTIONS), max_size=6)):
            options |= choice
        if options.get("competition") == "rims":
            options.pop("activation", None)
        if "asleep" in options:
            options.pop("hear", None)
    rim = RIM(
        3,
        num_rims * rim_size,
        num_rims,
        draw(st.integers(1, num_rims)),
        cell=draw(st.sampled_from(["lstm", "gru"])),
        input_heads=heads,
        input_key_size=draw(st.integers(1, 3)),
        input_value_size=2 * heads,
        comm_heads=draw(st.integers(1, 2)),
        comm_key_size=2,
        comm_value_size=draw(st.integers(1, 3)),
        num_layers=draw(st.integers(1, 2)),
        dtype=torch.float64,
        **options,
    ).eval()
    for parameter in rim.parameters():
        parameter.data = torch.randn_like(parameter)
    for buffer in rim.buffers():
        buffer.data = 0.2 * torch.randn_like(buffer)
    steps, batch, elements = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x = torch.randn(steps, batch, elements, 3, dtype=torch.float64, requires_grad=True)
    state = tuple(
        torch.randn(rim.num_layers, batch, rim.hidden_size, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    return rim, x, state, torch.rand(steps, batch) < 0.3


def gradients(outputs, inputs):
    torch.manual_seed(0)
    weights = [torch.randn(output.shape, dtype=output.dtype) for output in outputs]
    pairs = [(o, w) for o, w in zip(outputs, weights, strict=True) if o.requires_grad]
    return torch.autograd.grad(
        [o for o, _ in pairs], inputs, [w for _, w in pairs], allow_unused=True, materialize_grads=True
    )


def check(case, dropped=(), forced=()):
    rim, x, state, starts = case
    inputs = [x, *state, *rim.parameters()]
    with rim.trace() as trace, rim.drop(*dropped), rim.force(*forced):
        output, (h, c) = rim(x, state, starts)
    expected, (h_expected, c_expected), active = paper_equations.run(rim, x, state, starts, dropped, forced)
    assert torch.equal(trace.active, active)
    ours = [output, h, c, *gradients([output, h, c], inputs)]
    assume(all(each.abs().max() < 1000 for each in ours))  # else rounding decides on their tenth digits
    theirs = [expected, h_expected, c_expected, *gradients([expected, h_expected, c_expected], inputs)]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_each_option_is_its_equation_forward_and_in_every_gradient(options, data):
    check(data.draw(layers(options)))


@settings(max_examples=100, deadline=None)
@given(case=layers())
def test_so_are_all_combinations(case):
    check(case)


@settings(max_examples=60, deadline=None)
@given(case=layers(), data=st.data())
def test_with_rims_dropped_and_forced(case, data):
    rim = case[0]
    cell = rim.layers[0]
    dropped = data.draw(st.sets(st.integers(0, cell.num_rims - 1), max_size=cell.num_rims - 1))
    left = sorted(set(range(cell.num_rims)) - dropped)
    forced = data.draw(st.sets(st.sampled_from(left), max_size=min(cell.num_active, len(left))))
    check(case, tuple(dropped), tuple(forced))


@pytest.mark.parametrize("dropped", [(), (0,), (0, 1), (3,)], ids=str)
def test_those_who_keep_their_state_are_the_same_when_others_are_dropped(dropped):
    torch.manual_seed(0)
    rim = RIM(3, 12, 4, 2, asleep="half-listen", dtype=torch.float64)
    x = torch.randn(6, 3, 1, 3, dtype=torch.float64, requires_grad=True)
    state = tuple(torch.randn(1, 3, 12, dtype=torch.float64, requires_grad=True) for _ in range(2))
    check((rim, x, state, torch.rand(6, 3) < 0.2), dropped)
    with rim.trace() as trace:
        output, _ = rim(x, state)
    before = torch.cat([state[0], output[:-1]]).unflatten(-1, (4, 3))
    kept = (output.unflatten(-1, (4, 3)) == before).all(-1)
    assert torch.equal(kept[..., :2], ~trace.active[..., :2]) and not kept[..., 2:].any()


def make(**options):
    torch.manual_seed(0)
    return RIM(5, 18, 6, 4, **options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_an_engine_runs_them_and_they_change_something(options):
    rim, x = make(**options), torch.randn(6, 3, 5)
    begins_otherwise = options == {"initialization": "released"}
    in_c = begins_otherwise or not {"asleep", "activation", "balance", "hear", "communication"}.isdisjoint(options)
    fast = {"C": "C", "torch": "torch" if begins_otherwise else "readable"}[loops_here()]  # without a compiler
    assert engine_of(rim) == (fast if in_c else "readable")
    paper = make()
    output, (h, c) = rim(x)
    loss = output.square().sum() + h.sum() + c.sum()
    loss.backward()
    paper.load_state_dict(rim.state_dict(), strict=False)
    expected, _ = paper(x)
    same = begins_otherwise or options.get("selection") == "straight-through" or "balance" in options
    assert torch.allclose(expected, output, atol=1e-6) == same
    copy = pickle.loads(pickle.dumps(rim))
    assert copy.layers[0].extra_repr().endswith(", ".join(f"{name}={value!r}" for name, value in options.items()))
    with torch.no_grad():
        assert torch.equal(copy.eval()(x)[0], rim.eval()(x)[0])


def test_gated_messages_and_would_be_updates_bound_the_state():
    """With large weights the paper's state leaves all bounds."""
    largest = {}
    for name, options in (
        ("paper", {}), ("gated", {"communication": "gated"}), ("updates", {"hear": "updates"}),
        ("both", {"communication": "gated", "hear": "updates"}), ("drift", {"asleep": "drift"}),
    ):  # fmt: skip
        rim = make(**options, dtype=torch.float64)
        for weight in rim.parameters():
            weight.data.mul_(6)
        with torch.no_grad():
            largest[name] = rim(torch.randn(200, 8, 5, dtype=torch.float64))[0].abs().nan_to_num(1e300).max().item()
    assert largest["paper"] > 1e6 and largest["both"] <= 2 and largest["updates"] < 1e3 and largest["gated"] < 300
    assert largest["drift"] < 1e3


def test_at_most_num_active_rims_are_active_and_sometimes_none():
    rim = make(activation="at_most")
    for weight in rim.parameters():
        weight.data.mul_(5)
    with rim.trace() as trace, torch.no_grad():
        rim(torch.randn(50, 8, 5))
    numbers = trace.active.sum(-1)
    assert numbers.max() <= 4 and numbers.min() < 4 and len(numbers.unique()) > 2
    low = trace.input_attention[..., -1] <= 0.5
    assert not (trace.active & ~low).any()


def test_balance_wakes_a_starved_rim():
    """Those who act first have positive states, keys and queries, so they go on; the others stay at zero, asleep."""
    x = torch.rand(20, 8, 5)

    def shares(rim):
        with rim.trace() as trace, torch.no_grad():
            rim(x)
        return trace.active.float().mean((0, 1))

    rim = make(balance=0.02, communication=False)
    with torch.no_grad():
        rim.layers[0].input_key.abs_()
        rim.layers[0].input_query.abs_()
        rim.layers[0].bias_ih[:, 6:9] = 5  # what goes into the memory
    rim.eval()
    assert torch.equal(shares(rim), torch.tensor([1.0, 1, 1, 1, 0, 0]))
    frozen = rim.layers[0].balance_bias.clone()
    shares(rim)
    assert torch.equal(rim.layers[0].balance_bias, frozen)
    rim.train()
    used = torch.stack([shares(rim) for _ in range(100)])
    assert used[-50:].mean(0).min() > 0.3, used[-50:].mean(0)
    rim.eval()
    other = make(balance=0.02, communication=False)
    other.load_state_dict(rim.state_dict())
    assert torch.equal(other.eval()(x)[0], rim(x)[0])


def test_the_competition_learns_only_if_the_selection_lets_it():
    x = torch.randn(6, 3, 5)
    norms = {}
    for selection in ("hard", "straight-through", "soft"):
        rim = make(selection=selection)
        rim(x)[0].sum().backward()
        norms[selection] = rim.layers[0].input_query.grad.norm()
    assert not torch.isclose(norms["hard"], norms["straight-through"], rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"communication": "gate"}, "communication must be True or 'gated' or False, got 'gate'"),
        ({"start": "zeros"}, "start must be 'zero' or 'learned', got 'zeros'"),
        ({"null_bound": 0.0}, "null_bound must be above 0 and at most 1, got 0.0"),
        ({"balance": 1.5}, "balance must be at least 0 and below 1, got 1.5"),
        ({"balance": 0.1, "input_attention": False}, "balance must be 0.0 without input_attention, got 0.1: nobody"),
        ({"competition": "rims", "activation": "at_most"}, "activation must be 'exactly' with competition='rims'"),
        ({"competition": "rims", "position_competition": True}, "position_competition must be False with competition"),
        ({"hear": "updates", "asleep": "drift"}, "hear must be 'states' with asleep='drift', got 'updates'"),
        ({"hear": "updates", "communication": False}, "hear='updates' needs communication, got communication=False"),
    ],
)  # fmt: skip
def test_options_that_contradict_each_other_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        make(**options)
