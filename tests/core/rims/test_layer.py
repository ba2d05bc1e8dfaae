"""The RIM layer against a slow transcription of the paper, and against what its docstring promises."""

import copy
import pickle
from unittest import mock

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rims_rl import RIM, RIMCell
from rims_rl.core.rims.engines.choose import ENGINES, fastest
from rims_rl.core.rims.trace import Records
from tests.helpers import paper_equations
from tests.helpers.engines import in_c_and_in_torch, needs_c

RELEASED = {"communication": "gated", "hear": "updates"}


@st.composite
def layers(draw, max_layers=2, more=({},)):
    """A small RIM in float64 with large random weights, an input, a state and perhaps episode starts. It has one of
    the options in ``more``."""
    torch.manual_seed(draw(st.integers(0, 2**31)))
    num_rims, heads = draw(st.integers(1, 5)), draw(st.integers(1, 2))
    attention = draw(st.booleans()) or draw(st.booleans())
    rim_size = draw(st.integers(1, 3))
    options = draw(st.sampled_from(more))
    communication = draw(st.booleans()) or draw(st.booleans())
    rim = RIM(
        3,
        num_rims * rim_size,
        num_rims,
        draw(st.integers(1, num_rims)),
        cell=draw(st.sampled_from(["lstm", "gru"])),
        num_layers=draw(st.integers(1, max_layers)),
        input_heads=heads,
        input_key_size=draw(st.integers(1, 3)),
        input_value_size=draw(st.sampled_from([2, 4, 24])),  # read without making values if it is much more than 3
        comm_heads=draw(st.integers(1, 2)),
        comm_key_size=draw(st.integers(1, 3)),
        comm_value_size=draw(st.integers(1, 3)),
        comm_top_k=draw(st.one_of(st.none(), st.integers(1, num_rims))),
        input_attention=attention,
        position_competition=attention and draw(st.booleans()),
        dtype=torch.float64,
        **({"communication": communication} | options),
    )
    for parameter in rim.parameters():
        parameter.data.mul_(2)
    steps, batch, elements = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x = torch.randn(steps, batch, elements, 3, dtype=torch.float64, requires_grad=True)
    state = tuple(
        torch.randn(rim.num_layers, batch, rim.hidden_size, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    starts = (torch.rand(steps, batch) < 0.3) if draw(st.booleans()) else None
    return rim, x, state, starts


def gradients(outputs, inputs):
    torch.manual_seed(0)
    weights = [torch.randn(output.shape, dtype=output.dtype) for output in outputs]
    pairs = [(o, w) for o, w in zip(outputs, weights, strict=True) if o.requires_grad]  # a GRU's c may be a constant
    return torch.autograd.grad(
        [o for o, _ in pairs], inputs, [w for _, w in pairs], allow_unused=True, materialize_grads=True
    )


@in_c_and_in_torch
@settings(max_examples=60, deadline=None)
@given(case=layers())
def test_layer_equals_the_papers_equations_forward_and_in_every_gradient(loops, case):
    rim, x, state, starts = case
    assume(loops == "c" or not rim.cells[0].position_competition)
    inputs = [x, *state, *rim.parameters()]
    rim.engine = "auto" if loops == "c" else "torch"
    with rim.trace() as trace:
        output, (h, c) = rim(x, state, starts)
    expected, (h_expected, c_expected), active = paper_equations.run(rim, x, state, starts)
    assert torch.equal(trace.active, active)
    ours = [output, h, c, *gradients([output, h, c], inputs)]
    theirs = [expected, h_expected, c_expected, *gradients([expected, h_expected, c_expected], inputs)]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@in_c_and_in_torch
@settings(max_examples=60, deadline=None)
@given(case=layers(max_layers=1))
def test_fast_and_readable_paths_are_the_same_function(loops, case):
    rim, x, (h, c), starts = case
    (cell,) = rim.layers
    assume(loops == "c" or not cell.position_competition)
    inputs = [x, h, c, *cell.parameters()]
    results = []
    fast = fastest(cell, x) if loops == "c" else ENGINES["torch"]
    for engine in (fast, ENGINES["readable"]):
        records = Records()
        outputs = engine.run(cell, x, h[0], c[0], starts, records)
        results.append([*outputs, *gradients(outputs, inputs), *records[0]])
    with torch.no_grad():
        torch.testing.assert_close(fast.run(cell, x, h[0], c[0], starts), tuple(results[0][:3]), rtol=0, atol=1e-12)
    for fast, readable in zip(*results, strict=True):
        torch.testing.assert_close(fast, readable, rtol=1e-10, atol=1e-10)


@in_c_and_in_torch
@settings(max_examples=60, deadline=None)
@given(case=layers(max_layers=1, more=({}, RELEASED)), rates=st.tuples(*[st.sampled_from([0.0, 0.5])] * 2))
def test_dropout_of_all_steps_at_once_is_dropout_step_by_step(loops, case, rates):
    """With the same masks: those that the loops draw are dealt out, step by step, to the readable path."""
    rim, x, (h, c), starts = case
    (cell,) = rim.layers
    assume(loops == "c" or (cell.hear == "states" and not cell.position_competition))
    cell.input_dropout, cell.comm_dropout = rates
    inputs, masks, dropout = [x, h, c, *cell.parameters()], {}, torch.nn.functional.dropout

    def draw(ones, rate):
        which = "heard" if "read" in masks or not cell.input_dropout else "read"
        masks[which] = dropout(ones, rate)
        return masks[which]

    engine = fastest(cell, x) if loops == "c" else ENGINES["torch"]
    with mock.patch("torch.nn.functional.dropout", draw):
        outputs = engine.run(cell, x, h[0], c[0], starts)
    fast = [*outputs, *gradients(outputs, inputs)]
    order = iter((step, which) for step in range(len(x)) for which in ["read", "heard"][: 1 + bool(cell.communication)])

    def deal(vector, rate, training):
        step, which = next(order)
        return vector * masks[which][:, step].transpose(0, 1) if which in masks else vector

    with mock.patch("torch.nn.functional.dropout", deal):
        outputs = ENGINES["readable"].run(cell, x, h[0], c[0], starts)
    assert ("read" in masks, "heard" in masks) == (rates[0] > 0, rates[1] > 0 and bool(cell.communication))
    for a, b in zip(fast, [*outputs, *gradients(outputs, inputs)], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(layers(), st.data())
def test_dropped_and_forced_rims_are_those_of_the_equations_with_them_set_by_hand(case, data):
    """Forward, in every gradient, in the trace and in single steps, which are the readable path."""
    rim, x, state, starts = case
    K, num_active = rim.layers[0].num_rims, rim.layers[0].num_active
    rims = data.draw(st.permutations(range(K)))
    dropped = rims[: data.draw(st.integers(0, K - 1))]
    forced = rims[len(dropped) :][: data.draw(st.integers(0, min(num_active, K - len(dropped))))]
    inputs = [x, *state, *rim.parameters()]
    with rim.drop(*dropped), rim.force(*forced), rim.trace() as trace:
        output, (h, c) = rim(x, state, starts)
    expected = paper_equations.run(rim, x, state, starts, dropped, forced)
    assert torch.equal(trace.active, expected[2])
    assert not trace.active[..., dropped].any() and trace.active[..., forced].all()
    outside = [
        trace.input_attention[..., dropped, :],
        trace.communication[..., dropped, :],
        trace.communication[..., dropped],
    ]
    outside += [state.unflatten(-1, (K, -1))[..., dropped, :] for state in (output, h, c)]
    assert not any(part.any() for part in outside)
    ours = [output, h, c, *gradients([output, h, c], inputs)]
    theirs = [expected[0], *expected[1], *gradients([expected[0], *expected[1]], inputs)]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    with rim.drop(*dropped), rim.force(*forced), torch.no_grad():
        torch.testing.assert_close(rim(x, state, starts), (output, (h, c)), rtol=0, atol=1e-12)
        alive = 1 if starts is None else (starts[0] == 0).unsqueeze(-1)
        step = rim.step(x[0], tuple(part * alive for part in state))
    torch.testing.assert_close(step.h[-1], output[0], rtol=1e-10, atol=1e-10)
    for name in ("active", "input_attention", "communication"):
        torch.testing.assert_close(getattr(step, name), getattr(trace, name)[0], rtol=1e-10, atol=1e-10)


def test_interventions_end_with_their_block_add_up_and_refuse_what_makes_no_sense():
    rim = RIM(5, 18, 6, 4)
    x = torch.randn(7, 3, 5)
    plain = rim(x)[0]
    with rim.drop(1), rim.drop(4):
        both = rim(x)[0]
    with rim.drop(1, 4):
        assert torch.equal(rim(x)[0], both) and not torch.equal(both, plain)
    assert torch.equal(rim(x)[0], plain)
    for intervene, words in (
        (lambda: rim.drop(6), "no RIM 6: RIMs are 0 to 5"),
        (lambda: rim.force(-1), "no RIM -1"),
        (lambda: rim.drop(*range(6)), "at least one of the 6 RIMs must be left"),
        (lambda: rim.force(*range(5)), r"at most num_active=4 RIMs can be forced, got \[0, 1, 2, 3, 4\]"),
    ):
        with pytest.raises(ValueError, match=words), intervene():
            pass
    with pytest.raises(ValueError, match="RIM 1 cannot be dropped and forced"), rim.drop(1), rim.force(1):
        pass


@pytest.mark.parametrize("elements", [1, 3])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_hand_written_backward_passes_gradcheck(cell, elements):
    torch.manual_seed(1)
    rim = RIM(
        3, 8, 4, 2, cell=cell, input_key_size=3, comm_heads=2, comm_key_size=3, comm_value_size=2, dtype=torch.float64
    )
    x = torch.randn(3, 2, elements, 3, dtype=torch.float64, requires_grad=True)
    h, c = (torch.randn(1, 2, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    starts = torch.tensor([[0, 0], [0, 1], [0, 0]])
    names = [name for name, _ in rim.named_parameters()]

    def run(x, h, c, *weights):
        output, state = torch.func.functional_call(rim, dict(zip(names, weights, strict=True)), (x, (h, c), starts))
        return output, *state

    assert torch.autograd.gradcheck(run, (x, h, c, *rim.parameters()), atol=1e-7)


def rollout(rim, steps=12, batch=5, elements=1, **kwargs):
    torch.manual_seed(3)
    for parameter in rim.parameters():
        parameter.data.mul_(3)
    x = torch.randn(steps, batch, elements, rim.input_size)
    with rim.trace() as trace:
        output, state = rim(x, **kwargs)
    return x, output, state, trace


@pytest.mark.parametrize("options", [{}, {"input_heads": 2}, {"position_competition": True}, {"cell": "gru"}])
@pytest.mark.parametrize("elements", [1, 4])
def test_exactly_num_active_rims_are_active_and_the_others_keep_their_state_bit_for_bit(options, elements):
    rim = RIM(5, 24, 6, 2, **options)
    _, output, _, trace = rollout(rim, elements=elements)
    assert (trace.active.sum(-1) == 2).all()
    states = torch.cat([torch.zeros_like(output[:1]), output]).unflatten(-1, (6, 4))
    for before, after, active in zip(states, states[1:], trace.active, strict=False):
        assert torch.equal(before[~active], after[~active])
        assert (before[active] != after[active]).any(-1).all()
    assert len(trace.active.flatten(0, 1).unique(dim=0)) > 1, "the competition should not always end the same way"


def test_inactive_rims_keep_c_bit_for_bit_and_gradient_flows_through_the_copy():
    rim = RIM(5, 24, 6, 2)
    state = tuple(torch.randn(1, 3, 24, requires_grad=True) for _ in range(2))
    with rim.trace() as trace:
        _, (h, c) = rim(torch.randn(1, 3, 5), state)
    inactive = ~trace.active[0].repeat_interleave(4, -1)
    assert torch.equal(h[0][inactive], state[0][0][inactive])
    assert torch.equal(c[0][inactive], state[1][0][inactive])
    (gradient,) = torch.autograd.grad(c.sum(), state[1])
    assert (gradient[0][inactive] == 1).all()


def test_ties_go_to_the_lowest_index():
    for options in ({}, {"input_heads": 4}, {"position_competition": True}):
        rim = RIM(5, 60, 20, 7, input_value_size=12, **options)
        with rim.trace() as trace:  # h = 0: every RIM has the same attention
            rim(torch.randn(1, 9, 5))
        assert trace.active[0, :, :7].all() and not trace.active[0, :, 7:].any()


def jacobian_between_rims(rim, x, h, c):
    """(K, K): whether RIM i's next h depends on RIM j's h."""
    jacobian = torch.autograd.functional.jacobian(lambda h: rim(x, (h, c))[1][0], h)[0, 0, :, 0, 0]
    K, H = rim.layers[0].num_rims, rim.layers[0].rim_size
    return jacobian.view(K, H, K, H).abs().sum((1, 3)) != 0


def test_without_communication_the_jacobian_between_rims_is_exactly_block_diagonal():
    torch.manual_seed(0)
    rim = RIM(5, 18, 6, 4, communication=False)
    depends = jacobian_between_rims(rim, torch.randn(1, 1, 5), torch.randn(1, 1, 18), torch.randn(1, 1, 18))
    assert torch.equal(depends, torch.eye(6, dtype=torch.bool))


def test_with_communication_active_rims_depend_on_the_kept_state_of_inactive_ones():
    torch.manual_seed(0)
    rim = RIM(5, 18, 6, 4)
    x, h, c = torch.randn(1, 1, 5), torch.randn(1, 1, 18), torch.randn(1, 1, 18)
    with rim.trace() as trace:
        depends = jacobian_between_rims(rim, x, h, c)
    active = trace.active[0, 0]
    assert depends[active].all()
    assert torch.equal(depends[~active], torch.eye(6, dtype=torch.bool)[~active])


def test_comm_top_k_limits_whom_a_rim_listens_to():
    rim = RIM(5, 18, 6, 4, comm_heads=1, comm_top_k=2)
    with rim.trace() as trace:
        rim(torch.randn(12, 5, 5))
    listened = (trace.communication > 0).sum(-1)
    assert (listened[trace.active] == 2).all() and (listened[~trace.active] == 0).all()


@pytest.mark.parametrize("elements", [1, 3])
def test_a_zero_input_reads_exactly_nothing(elements):
    """With x = 0 the state moves as if the input weights of the dynamics were not there."""
    rim = RIM(5, 18, 6, 4)
    blind = copy.deepcopy(rim)
    blind.layers[0].weight_ih.data.zero_()
    state = tuple(torch.randn(1, 3, 18) for _ in range(2))
    x = torch.zeros(4, 3, elements, 5)
    assert torch.equal(rim(x, state)[0], blind(x, state)[0])
    assert not torch.equal(rim(x + 1, state)[0], blind(x + 1, state)[0])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_splitting_a_sequence_and_carrying_the_state_changes_nothing(cell):
    rim = RIM(5, 18, 6, 4, num_layers=2, cell=cell, dtype=torch.float64)
    x = torch.randn(9, 3, 5, dtype=torch.float64)
    whole, state = rim(x)
    first, between = rim(x[:4])
    second, last = rim(x[4:], between)
    torch.testing.assert_close(whole, torch.cat([first, second]), rtol=0, atol=1e-14)
    torch.testing.assert_close(state, last, rtol=0, atol=1e-14)


def test_resetting_inside_a_sequence_equals_running_two_episodes():
    rim = RIM(5, 18, 6, 4, num_layers=2, dtype=torch.float64)
    x = torch.randn(9, 2, 5, dtype=torch.float64)
    starts = torch.zeros(9, 2)
    starts[4, 0] = 1
    together, _ = rim(x, episode_starts=starts)
    apart = torch.cat([rim(x[:4, :1])[0], rim(x[4:, :1])[0]])
    torch.testing.assert_close(together[:, :1], apart, rtol=0, atol=1e-14)
    torch.testing.assert_close(together[:, 1:], rim(x[:, 1:])[0], rtol=0, atol=1e-14)


def test_gradient_does_not_cross_an_episode_start():
    rim = RIM(5, 18, 6, 4)
    x = torch.randn(6, 1, 5, requires_grad=True)
    starts = torch.zeros(6, 1, dtype=torch.bool)
    starts[3] = True
    output, _ = rim(x, episode_starts=starts)
    (gradient,) = torch.autograd.grad(output[5].sum(), x)
    assert (gradient[:3] == 0).all() and (gradient[3:] != 0).any(-1).all()


WAYS = {
    "C": {},
    "C, gru": {"cell": "gru"},
    "C, set": {"input_heads": 2, "comm_top_k": 6},
    "C, positions": {"position_competition": True},
    "torch": {"engine": "torch"},
    "torch, gru": {"cell": "gru", "engine": "torch"},
    "readable": {"engine": "readable"},
}
in_all_ways = pytest.mark.parametrize(
    "way", [pytest.param(way, marks=needs_c if way[0] == "C" else ()) for way in WAYS]
)


@in_all_ways
@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_a_reset_forgets_what_is_not_finite_and_so_does_its_gradient(way, bad):
    rim = RIM(5, 18, 6, 4, num_layers=2, **WAYS[way])
    x, starts = torch.randn(4, 2, 5, requires_grad=True), torch.tensor([[1, 0], [0, 0], [0, 1], [0, 0]])
    state = [torch.randn(2, 2, 18) for _ in range(2)]
    fresh = [part.clone() for part in state]
    for part in state:
        part[:, 0] = bad
        part.requires_grad_()
    results = []
    for begin in (state, fresh):
        output, (h, c) = rim(x, tuple(begin), starts)
        loss = output.square().sum() + h.sum() + c.sum()
        results.append([output, h, c, *torch.autograd.grad(loss, [x, *rim.parameters()], retain_graph=True)])
        if begin is state:
            results[0] += [part[:, 0] for part in torch.autograd.grad(loss, state, allow_unused=True)]
    *ours, d_h, d_c = results[0]
    assert all(map(torch.equal, ours, results[1])) and not d_h.any() and not d_c.any()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("rims", [1, 6])
@in_all_ways
def test_outputs_and_states_share_no_memory(way, rims, layers, grad):
    options = {name: min(rims, value) if name == "comm_top_k" else value for name, value in WAYS[way].items()}
    rim, x = RIM(5, 18, rims, min(rims, 4), num_layers=layers, **options), torch.randn(1, 2, 5)
    state = tuple(torch.randn(layers, 2, 18) for _ in range(2))
    with torch.set_grad_enabled(grad):
        output, (h, c) = rim(x, state)
    tensors = [*state, output, h, c]
    before = [tensor.detach().clone() for tensor in tensors]
    for i in range(len(tensors)):
        with torch.no_grad():
            tensors[i].detach().fill_(7)
        before[i].fill_(7)
        assert all(map(torch.equal, tensors, before))


@pytest.mark.parametrize("rims", [1, 6])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_state_may_be_written_to_before_the_backward(cell, rims):
    """As nn.LSTM's may."""
    rim, x, gradients = RIM(5, 18, rims, min(rims, 4), cell=cell), torch.randn(3, 2, 5), []
    for write in (False, True):
        rim.zero_grad()
        output, (h, c) = rim(x)
        if write:
            with torch.no_grad():
                h.zero_(), c.zero_()
        output.sum().backward()
        gradients.append([weight.grad.clone() for weight in rim.parameters() if weight.grad is not None])
    assert gradients[0] and all(map(torch.equal, *gradients))


def test_long_sequences_run_in_pieces_and_nobody_can_tell(monkeypatch):
    rim = RIM(5, 18, 6, 4, dtype=torch.float64)
    x = torch.randn(9, 3, 5, dtype=torch.float64, requires_grad=True)
    starts = torch.rand(9, 3) < 0.2
    results = []
    for piece in (10**9, 2 * 3 * 6 * 12, 1):  # all at once, two steps, one step at a time
        monkeypatch.setattr("rims_rl.core.rims.engines.loops.PIECE", piece)
        with rim.trace() as trace:
            output, state = rim(x, episode_starts=starts)
        results.append([output, *state, *gradients([output, *state], [x, *rim.parameters()]), *trace.layers[0]])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_batch_order_does_not_matter():
    rim = RIM(5, 18, 6, 4, dtype=torch.float64)
    x, order = torch.randn(7, 6, 5, dtype=torch.float64), torch.randperm(6)
    torch.testing.assert_close(rim(x)[0][:, order], rim(x[:, order])[0], rtol=0, atol=1e-14)


def test_element_order_does_not_matter():
    rim = RIM(5, 18, 6, 4, dtype=torch.float64)
    x, order = torch.randn(7, 2, 6, 5, dtype=torch.float64), torch.randperm(6)
    torch.testing.assert_close(rim(x)[0], rim(x[:, :, order])[0], rtol=0, atol=1e-13)


def test_batch_first_swaps_time_and_batch_of_everything_but_the_state():
    rim = RIM(5, 18, 6, 4)
    swapped = RIM(5, 18, 6, 4, batch_first=True)
    swapped.load_state_dict(rim.state_dict())
    x, starts = torch.randn(7, 3, 5), torch.rand(7, 3) < 0.3
    output, state = rim(x, episode_starts=starts)
    with swapped.trace() as trace:
        output_swapped, state_swapped = swapped(x.transpose(0, 1), episode_starts=starts.T)
    assert torch.equal(output, output_swapped.transpose(0, 1))
    torch.testing.assert_close(state, state_swapped, rtol=0, atol=0)
    assert trace.active.shape == (3, 7, 6)


def test_without_input_attention_all_rims_are_active_and_read_the_mean_value():
    rim = RIM(5, 18, 6, 4, input_attention=False)
    x = torch.randn(4, 2, 3, 5)
    with rim.trace() as trace:
        output, _ = rim(x)
    assert trace.active.all()
    torch.testing.assert_close(output, rim(x.mean(2))[0])
    assert torch.equal(trace.input_attention[0, 0, 0], torch.tensor([1 / 3, 1 / 3, 1 / 3, 0]))
    assert not any("query" in name or "key" in name for name, _ in rim.named_parameters())


def test_one_rim_that_is_always_active_and_reads_everything_is_an_ordinary_lstm():
    """One RIM, no communication: nn.LSTM on the value, scaled by the attention; with attention off, nn.LSTM itself."""
    for cell, module in (("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)):
        rim = RIM(5, 8, 1, 1, cell=cell, input_attention=False, communication=False)
        (layer,) = rim.layers
        other = module(32, 8)
        weights = {f"{name}_l0": getattr(layer, name)[0] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        other.load_state_dict(weights)
        x = torch.randn(6, 3, 5)
        torch.testing.assert_close(rim(x)[0], other(x @ layer.input_value.T)[0], rtol=1e-5, atol=1e-6)


def test_gru_carries_c_untouched():
    state = tuple(torch.randn(2, 3, 18) for _ in range(2))
    _, (_, c) = RIM(5, 18, 6, 4, cell="gru", num_layers=2)(torch.randn(4, 3, 5), state)
    assert torch.equal(c, state[1])


@pytest.mark.parametrize("elements", [1, 3])
def test_step_and_cell_are_one_step_of_the_sequence(elements):
    rim = RIM(5, 18, 6, 4, num_layers=2)
    x = torch.randn(4, 3, elements, 5)
    with rim.trace() as trace:
        output, last = rim(x)
    state = (torch.zeros(2, 3, 18),) * 2
    for t in range(4):
        step = rim.step(x[t], state)
        state = step.h, step.c
        torch.testing.assert_close(step.h[-1], output[t])
        assert torch.equal(step.active, trace.active[t])
        torch.testing.assert_close(step.input_attention, trace.input_attention[t])
        torch.testing.assert_close(step.communication, trace.communication[t])
    torch.testing.assert_close(state, last)
    cell = RIMCell(5, 18, 6, 4)
    cell.load_state_dict(rim.layers[0].state_dict())
    h, c = cell(x[0])
    torch.testing.assert_close(h, rim(x[:1])[1][0][0])
    torch.testing.assert_close(cell(x[1], (h, c))[0], rim(x[:2])[1][0][0])


def test_trace_has_the_documented_shapes_joins_calls_and_ends_with_its_block():
    rim = RIM(5, 18, 6, 4, num_layers=2, input_heads=2)
    x = torch.randn(4, 3, 7, 5)
    with rim.trace() as trace:
        _, state = rim(x)
        rim(x, state)
    rim(x)
    assert trace.active.shape == (8, 3, 6) and trace.active.dtype == torch.bool
    assert trace.input_attention.shape == (8, 3, 6, 2)
    assert trace.layers[0].input_attention.shape == (8, 3, 6, 8)
    assert trace.communication.shape == (8, 3, 6, 6)
    torch.testing.assert_close(trace.layers[0].input_attention.sum(-1), torch.ones(8, 3, 6))
    torch.testing.assert_close(trace.communication.sum(-1), trace.active.float())
    with pytest.raises(RuntimeError, match="empty"), rim.trace() as unused:
        unused.active  # noqa: B018


def test_tracing_changes_nothing():
    rim = RIM(5, 18, 6, 4)
    x = torch.randn(4, 3, 5)
    plain = rim(x)[0]
    with rim.trace():
        assert torch.equal(rim(x)[0], plain)


def test_dropout_acts_in_training_only():
    rim = RIM(5, 18, 6, 4, input_dropout=0.5, comm_dropout=0.5)
    reference_rim = RIM(5, 18, 6, 4)
    reference_rim.load_state_dict(rim.state_dict())
    x = torch.randn(4, 3, 5)
    assert not torch.equal(rim(x)[0], rim(x)[0])
    torch.testing.assert_close(rim.eval()(x)[0], reference_rim(x)[0])


def test_no_gradient_reaches_the_weights_through_the_choice_of_rims():
    """Attention weights of inactive RIMs decide who is active; they get no gradient from it."""
    rim = RIM(5, 12, 6, 2, communication=False)
    with rim.trace() as trace:
        _, (h, _) = rim(torch.randn(1, 1, 5), tuple(torch.randn(1, 1, 12) for _ in range(2)))
    (gradient,) = torch.autograd.grad(h.sum(), rim.layers[0].input_query)
    assert torch.equal((gradient != 0).flatten(1).any(1), trace.active[0, 0])


@pytest.mark.parametrize(
    "options",
    [{}, {"cell": "gru"}, {"input_heads": 2, "comm_heads": 3}, {"communication": False}, {"input_value_size": 10}],
)
def test_parameter_count_equals_the_formula_of_the_docstring(options):
    cell = RIMCell(7, 24, 6, 4, **options)
    K, H, D = 6, 4, 7
    keys, value, g = cell.input_heads * 64, cell.input_value_size, {"lstm": 4, "gru": 3}[cell.cell]
    comm = cell.comm_heads * (2 * 32 + 2 * 32) if cell.communication else 0
    expected = D * (keys + value) + K * H * (keys + g * (value + H + 2) + comm)
    assert sum(p.numel() for p in cell.parameters()) == expected


@pytest.mark.parametrize("rim_size", [4, 32, 256])
def test_initial_outputs_have_a_similar_scale_at_any_size(rim_size):
    torch.manual_seed(0)
    output, _ = RIM(4 * rim_size, 4 * rim_size, 4, 2)(torch.randn(20, 8, 4 * rim_size))
    assert 0.05 < output[-1].std() < 0.6


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_any_float_dtype_forward_and_backward(dtype):
    rim = RIM(5, 18, 6, 4).to(dtype)
    output, (h, c) = rim(torch.randn(3, 2, 5, dtype=dtype), episode_starts=torch.tensor([[1, 1], [0, 1], [0, 0]]))
    output.sum().backward()
    assert output.dtype == h.dtype == c.dtype == dtype
    assert all(p.grad.dtype == dtype and p.grad.isfinite().all() for p in rim.parameters())


@pytest.mark.parametrize("elements", [1, 3])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_everything_stays_on_the_inputs_device(cell, elements):
    rim = RIM(5, 18, 6, 4, cell=cell, num_layers=2, device="meta")
    x = torch.randn(3, 2, elements, 5, device="meta")
    output, state = rim(x, episode_starts=torch.zeros(3, 2, device="meta"))
    assert output.shape == (3, 2, 18) and {t.device.type for t in (output, *state)} == {"meta"}
    with torch.no_grad():  # and the fast path
        output, *_ = ENGINES["torch"].run(rim.layers[0], x, state[0][0], state[1][0])
    assert output.device.type == "meta"


def test_under_autocast_and_after_pickling_and_deep_copies():
    rim = RIM(5, 18, 6, 4)
    x = torch.randn(3, 2, 5)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(rim(x)[0].float(), rim(x)[0].float(), rtol=0.1, atol=0.1)
    expected = rim(x)[0]
    for other in (copy.deepcopy(rim), pickle.loads(pickle.dumps(rim))):
        assert torch.equal(other(x)[0], expected)


def test_backward_twice_with_retained_graph_gives_the_same_gradient():
    rim = RIM(5, 18, 6, 4)
    x = torch.randn(3, 2, 5, requires_grad=True)
    output = rim(x)[0].sum()
    (first,) = torch.autograd.grad(output, x, retain_graph=True)
    (second,) = torch.autograd.grad(output, x)
    assert torch.equal(first, second)


def test_changing_a_weight_between_forward_and_backward_is_noticed():
    rim = RIM(5, 18, 6, 4)
    output = rim(torch.randn(3, 2, 5))[0].sum()
    with torch.no_grad():
        rim.layers[0].weight_hh.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.backward()


def test_repr_names_sizes_and_what_differs_from_the_defaults():
    text = repr(RIM(5, 18, 6, 4, cell="gru", input_value_size=8))
    assert "RIMCell(5, 18, num_rims=6, num_active=4, cell='gru', input_value_size=8)" in text


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((5, 20, 6, 4), {}, ["hidden_size", "20", "18"]),
        ((5, 18, 6, 7), {}, ["num_active", "7", "between 1 and num_rims=6"]),
        ((5, 18, 6, 0), {}, ["num_active", "0"]),
        ((5, 18, 0, 0), {}, ["num_rims", "0"]),
        ((5, 18), {"cell": "rnn"}, ["cell", "'rnn'", '"lstm" or "gru"']),
        ((5, 18), {"num_layers": 0}, ["num_layers", "0", "at least 1"]),
        ((5, 18), {"input_heads": 5}, ["input_value_size", "input_heads=5", "12"]),
        ((5, 18), {"comm_top_k": 9}, ["comm_top_k", "9", "num_rims=6"]),
        ((5, 18), {"input_dropout": 1.0}, ["input_dropout", "1.0", "below 1"]),
        ((5, 18), {"comm_heads": 0}, ["comm_heads", "0", "at least 1"]),
        ((5, 18), {"input_attention": False, "position_competition": True}, ["position_competition", "True"]),
    ],
)
def test_bad_arguments_are_named_with_their_value_and_what_would_be_right(arguments, options, words):
    with pytest.raises(ValueError) as error:
        RIM(*arguments, **options)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_bad_inputs_are_named_with_their_shape_and_what_would_be_right():
    rim = RIM(5, 18, 6, 4)
    good = torch.zeros(3, 2, 5)
    zeros = torch.zeros(1, 2, 18)
    for call, words in [
        (lambda: rim(torch.zeros(3, 2, 4)), ["x ", "(3, 2, 4)", "input_size is 5"]),
        (lambda: rim(torch.zeros(3, 4)), ["x ", "(3, 4)"]),
        (lambda: rim(torch.zeros(0, 2, 5)), ["x ", "at least one step"]),
        (lambda: rim(good, (zeros, torch.zeros(1, 3, 18))), ["state: c", "(1, 3, 18)", "(1, 2, 18)"]),
        (lambda: rim(good, episode_starts=torch.zeros(2, 3)), ["episode_starts", "(2, 3)", "(3, 2)"]),
        (lambda: rim.step(good[0], (zeros[0], zeros[0])), ["state: h", "(2, 18)", "(1, 2, 18)"]),
        (lambda: RIMCell(5, 18)(torch.zeros(2, 4)), ["x ", "(2, 4)", "input_size is 5"]),
        (lambda: RIMCell(5, 18)(good[0], (zeros, zeros)), ["state: h", "(1, 2, 18)", "(2, 18)"]),
    ]:
        with pytest.raises(ValueError) as error:
            call()
        assert all(word in str(error.value) for word in words), str(error.value)
