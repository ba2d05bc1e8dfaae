"""The family of RIMs, ``scoff``, ``brims`` and ``rims-workspace``, against a slow transcription of its equations."""

import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rims_rl.core import RIM, SchemaCell, TopDownRIM, WorkspaceCell, engine_of, make_core
from tests.core.rims.test_options import gradients
from tests.helpers import family_equations

FAMILY = ["scoff", "brims", "rims-workspace"]
OPTIONS = [
    {"communication": "gated"}, {"communication": False}, {"start": "learned"}, {"hear": "updates"},
    {"asleep": "drift"}, {"activation": "at_most"}, {"balance": 0.1}, {"selection": "straight-through"},
    {"selection": "soft"}, {"comm_top_k": 1}, {"position_competition": True}, {"input_attention": False},
]  # fmt: skip
NOT_WITH = {  # what an option cannot stand beside
    "asleep": ["hear"], "communication": ["hear"],
    "input_attention": ["activation", "balance", "selection", "position_competition"],
}  # fmt: skip
REFUSED = {"rims-workspace": ["hear", "comm_top_k"]}


@st.composite
def cases(draw, name, plain=False):
    """A small core in float64 with random weights, an input, a state and episode starts."""
    torch.manual_seed(draw(st.integers(0, 2**31)))
    num_rims, rim_size, heads = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    options = {}
    for choice in [] if plain else draw(st.lists(st.sampled_from(OPTIONS), max_size=4)):
        options |= choice
    for option, others in NOT_WITH.items():
        if option in options:
            options = {key: value for key, value in options.items() if key not in others}
    options = {key: value for key, value in options.items() if key not in REFUSED.get(name, [])}
    if name == "rims-workspace" and options.get("communication") is False:
        del options["communication"]
    value_size = draw(st.integers(1, 3))
    if name == "scoff":
        options |= {"num_schemas": draw(st.integers(1, 4)), "schema_key_size": draw(st.integers(1, 3))}
    if name == "rims-workspace":
        options |= {"num_slots": draw(st.integers(1, heads * value_size))}
    rim = make_core(
        name, 3, num_rims * rim_size, num_rims, draw(st.integers(1, num_rims)),
        draw(st.integers(2, 3) if name == "brims" else st.integers(1, 2)),
        cell=draw(st.sampled_from(["lstm", "gru"])), input_heads=heads, input_key_size=draw(st.integers(1, 3)),
        input_value_size=2 * heads, comm_heads=heads, comm_key_size=2, comm_value_size=value_size,
        dtype=torch.float64, **options,
    ).eval()  # fmt: skip
    for (
        parameter
    ) in rim.parameters():  # larger ones saturate attention: what differs by less than 1e-13 counts as a tie
        parameter.data = 0.7 * torch.randn_like(parameter) / math.sqrt(parameter.shape[-1])
    for buffer in rim.buffers():
        buffer.data = 0.2 * torch.randn_like(buffer)
    steps, batch, elements = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x = torch.randn(steps, batch, elements, 3, dtype=torch.float64, requires_grad=True)
    state = tuple(
        torch.randn(rim.num_layers, batch, rim.hidden_size, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    return rim, x, state, torch.rand(steps, batch) < 0.3


def check(case, dropped=(), forced=()):
    rim, x, state, starts = case
    inputs = [x, *state, *rim.parameters()]
    with rim.trace() as trace, rim.drop(*dropped), rim.force(*forced):
        output, (h, c) = rim(x, state, starts)
    expected, (h_expected, c_expected), active = family_equations.run(rim, x, state, starts, dropped, forced)
    assert torch.equal(torch.stack([layer.active for layer in trace.layers]), active)
    ours = [output, h, c, *gradients([output, h, c], inputs)]
    theirs = [expected, h_expected, c_expected, *gradients([expected, h_expected, c_expected], inputs)]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", FAMILY)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_each_core_is_its_equations_forward_and_in_every_gradient(name, data):
    check(data.draw(cases(name, plain=True)))


@pytest.mark.parametrize("name", FAMILY)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_so_it_is_with_the_options_of_rims(name, data):
    check(data.draw(cases(name)))


@pytest.mark.parametrize("name", FAMILY)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_and_with_rims_dropped_and_forced(name, data):
    case = data.draw(cases(name))
    cell = case[0].layers[0]
    dropped = data.draw(st.sets(st.integers(0, cell.num_rims - 1), max_size=cell.num_rims - 1))
    left = sorted(set(range(cell.num_rims)) - dropped)
    forced = data.draw(st.sets(st.sampled_from(left), max_size=min(cell.num_active, len(left))))
    check(case, tuple(dropped), tuple(forced))


def make(name, **options):
    torch.manual_seed(0)
    core = make_core(name, 5, 18, 6, 4, None, **options)
    for weight in core.parameters():
        weight.data.mul_(3)
    return core


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("dropped", [(), (0, 4)])
def test_steps_one_by_one_are_the_sequence(name, dropped):
    core, x, starts = make(name, start="learned"), torch.randn(6, 3, 2, 5), torch.rand(6, 3) < 0.3
    with torch.no_grad(), core.drop(*dropped), core.trace() as trace:
        output, last = core(x, None, starts)
        state = core.initial_state(3)
        for t in range(len(x)):
            step = core.step(x[t], core.begin(state, starts[t]))
            state = step.h, step.c
            torch.testing.assert_close(step.h[-1, :, :18], output[t])
            assert torch.equal(step.active, trace.active[t])
            torch.testing.assert_close(step.input_attention, trace.input_attention[t])
            torch.testing.assert_close(step.communication, trace.communication[t])
    torch.testing.assert_close(state, last)


@pytest.mark.parametrize("name", FAMILY)
def test_batch_first_swaps_batch_and_time_and_nothing_else(name):
    core, other = make(name), make(name, batch_first=True)
    x, starts = torch.randn(6, 3, 5), torch.rand(6, 3) < 0.3
    with core.trace() as trace, other.trace() as swapped:
        output, state = core(x, None, starts)
        output_b, state_b = other(x.transpose(0, 1), None, starts.transpose(0, 1))
    torch.testing.assert_close((output_b.transpose(0, 1), state_b), (output, state))
    assert torch.equal(swapped.active.transpose(0, 1), trace.active)


@pytest.mark.parametrize("name", FAMILY)
def test_it_runs_in_the_readable_engine_and_copies_are_the_same(name):
    core, x = make(name), torch.randn(4, 2, 5)
    assert isinstance(core, RIM) and engine_of(core) == "readable"
    copy = pickle.loads(pickle.dumps(core))
    assert engine_of(copy) == "readable" and str(copy) == str(core)
    assert torch.equal(copy(x)[0], core(x)[0])


def test_options_of_a_subclass_are_shown_beside_those_of_the_cell():
    cell = SchemaCell(5, 18, 6, 4, num_schemas=2, cell="gru")
    assert cell.extra_repr() == "5, 18, num_rims=6, num_active=4, cell='gru', num_schemas=2"


def test_all_rims_take_the_first_schema_where_an_episode_begins():
    cell = make("scoff").layers[0]
    read, zeros = torch.randn(3, 6, 12), torch.zeros(3, 6, 3)
    h, c = cell.dynamics(read, zeros, zeros)
    cell.num_schemas = 1
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "schema_key"):
        setattr(cell, name, torch.nn.Parameter(getattr(cell, name)[:1]))
    torch.testing.assert_close(cell.dynamics(read, zeros, zeros), (h, c))


def test_rims_differ_in_the_schema_that_they_take_and_the_choice_learns():
    core, chosen = make("scoff"), []
    (cell,) = core.layers
    choose = cell.choose_schema
    cell.choose_schema = lambda h, candidates: chosen.append(choose(h, candidates)) or chosen[-1]
    core(torch.randn(20, 8, 5))[0].square().sum().backward()
    taken = torch.stack(chosen)
    assert torch.equal(taken.sum(-1), torch.ones(20, 8, 6)) and set(taken.unique().tolist()) == {0.0, 1.0}
    assert (taken.mean((0, 1, 2)) > 0.02).all() and not torch.equal(taken[-1, :, 0], taken[-1, :, 1])
    assert cell.schema_query.grad.norm() > 0 and cell.schema_key.grad.norm() > 0


def test_a_layer_hears_the_one_above_one_step_later():
    core, x = make("brims"), torch.randn(4, 2, 5)
    state = tuple(torch.randn(2, 2, 18) for _ in range(2))
    with core.trace() as trace:
        core(x, state)
    assert [layer.input_attention.shape[-1] for layer in trace.layers] == [3, 2]  # input, above, null; below, null
    other = state[0].clone()
    other[1] += 1  # the state of the last layer
    before, after = core.step(x[0], state), core.step(x[0], (other, state[1]))
    assert not torch.allclose(before.h[0], after.h[0])
    without = RIM(5, 18, 6, 4, num_layers=2)
    assert torch.equal(without.step(x[0], state).h[0], without.step(x[0], (other, state[1])).h[0])


def test_balance_counts_in_every_layer_that_hears_the_one_above():
    core = make("brims", balance=0.05).train()
    core(torch.randn(10, 4, 5))
    assert all(cell.balance_bias.any() for cell in core.layers)


def test_slots_persist_through_an_episode_and_begin_anew_with_it():
    core, x = make("rims-workspace", num_slots=3), torch.randn(5, 2, 5)
    assert core.output_size == 18 and core.hidden_size == 18 + 3 * 128
    first = core.initial_state(2)[0][0, :, 18:].unflatten(-1, (3, 128))
    assert torch.equal(first, torch.eye(3, 128).expand(2, -1, -1))
    _, (h, c) = core(x)
    assert not torch.allclose(h[0, :, 18:].unflatten(-1, (3, 128)), first)
    emptied = h.clone()
    emptied[..., 18:] = 0
    assert not torch.allclose(core(x, (h, c))[0], core(x, (emptied, c))[0])
    starts = torch.zeros(5, 2)
    starts[0] = 1
    torch.testing.assert_close(core(x, (h, c), starts), core(x))


def test_communication_through_slots_says_how_much_each_rim_read_of_whom():
    core = make("rims-workspace")
    with core.trace() as trace:
        core(torch.randn(10, 4, 5))
    shares, active = trace.communication, trace.active
    torch.testing.assert_close(shares.sum(-1), active.float())
    assert not (shares * ~active.unsqueeze(-2)).any()  # nobody reads of those who wrote nothing


def test_slots_stay_as_they_are_where_nobody_is_active():
    core = make("rims-workspace", activation="at_most", null_bound=1e-6)
    x = torch.randn(3, 2, 5, requires_grad=True)
    output, (h, _) = core(x)
    assert torch.equal(h, core.initial_state(2)[0])
    output.sum().backward()
    assert x.grad.isfinite().all() and all(w.grad.isfinite().all() for w in core.parameters() if w.grad is not None)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("scoff", {"num_schemas": 0}, "num_schemas must be at least 1, got 0"),
        ("scoff", {"schema_key_size": 0}, "schema_key_size must be at least 1, got 0"),
        ("scoff", {"num_slots": 3}, "'scoff' has no option 'num_slots' .value 3.; .*num_schemas.*input_heads"),
        ("scoff", {"cell_class": WorkspaceCell}, "core 'scoff' stands for cell_class=.*; leave it out"),
        ("brims", {"engine": "c"}, "engine must be 'auto' or 'readable' where layers listen to the one above, got 'c'"),
        ("brims", {"own_elements": True}, "own_elements must be False where layers listen to the one above, got True"),
        ("rims-workspace", {"num_slots": 0}, "num_slots must be at least 1, got 0"),
        ("rims-workspace", {"num_slots": 129}, r"num_slots must be at most comm_heads \* comm_value_size = 128, got"),
        ("rims-workspace", {"hear": "updates"}, "hear must be 'states' with a workspace, got 'updates'"),
        ("rims-workspace", {"comm_top_k": 2}, "comm_top_k must be None with a workspace, got 2: RIMs hear slots"),
        ("rims-workspace", {"communication": False}, "communication must be True or 'gated' with a workspace, got Fal"),
    ],
)  # fmt: skip
def test_bad_options_are_named(name, options, words):
    with pytest.raises(ValueError, match=words):
        make_core(name, 5, 18, 6, 4, None, **options)


def test_one_layer_cannot_hear_the_one_above():
    with pytest.raises(ValueError, match="num_layers must be at least 2 where layers listen to the one above, got 1"):
        TopDownRIM(5, 18, num_layers=1)
