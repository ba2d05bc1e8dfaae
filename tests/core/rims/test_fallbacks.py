"""What the fast loops do not know goes the readable way, and what nobody can do is said in one sentence."""

import warnings

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, vmap
from torch.nn.utils import parametrize, prune

from rims_rl import RIM, RIMCell
from rims_rl.core import LSTM, engine_of, weights_at_rest
from rims_rl.core.rims.engines import c_loops
from tests.helpers.engines import needs_c

KINDS = {
    "C": {},
    "C, set": {"input_heads": 2},
    "C, GRU": {"cell": "gru"},
    "C, positions": {"position_competition": True},
}
kinds = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)


def make(**options):
    torch.manual_seed(0)
    return RIM(5, 18, 6, 4, **options)


def state(dtype=torch.float32):
    torch.manual_seed(1)
    return torch.randn(1, 3, 18).to(dtype), torch.randn(1, 3, 18).to(dtype)


# ---- tensors that do not fit -----------------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("with_grad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.cfloat])
def test_another_dtype_than_that_of_the_weights_is_named_by_every_entry_point(options, with_grad, dtype):
    rim, cell, x, (h, c) = make(**options), RIMCell(5, 18, **options), torch.randn(4, 3, 5), state()
    calls = {
        "x": [lambda: rim(x.to(dtype)), lambda: cell(x[0].to(dtype)), lambda: rim.step(x[0].to(dtype), (h, c))],
        "h": [lambda: rim(x, (h.to(dtype), c)), lambda: rim(x[:1], (h.to(dtype), c))],
        "c": [lambda: rim(x, (h, c.to(dtype))), lambda: cell(x[0], (h[0], c[0].to(dtype)))],
    }
    calls["c"].append(lambda: rim.step(x[0], (h, c.to(dtype))))
    with torch.set_grad_enabled(with_grad), weights_at_rest(rim):
        for name, call in ((name, call) for name, all_calls in calls.items() for call in all_calls):
            with pytest.raises(
                ValueError, match=rf"{name} must be torch.float32, .*, got {dtype}; `to\(torch.float32\)`"
            ):
                call()


@kinds
def test_another_device_and_things_that_are_no_tensors_are_named(options):
    rim, x, (h, c) = make(**options), torch.randn(4, 3, 5), state()
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [4, 3, 2])
    for call, error, words in [
        (lambda: rim(x.to("meta")), ValueError, "x must be on cpu, as the weights are, got meta"),
        (lambda: rim(x, (h, c.to("meta"))), ValueError, "state: c must be on cpu, as the weights are, got meta"),
        (lambda: rim(x, None, torch.zeros(4, 3, device="meta")), ValueError, "episode_starts must be on cpu"),
        (lambda: make(device="meta")(x), ValueError, "x must be on meta, as the weights are, got cpu"),
        (lambda: rim(x.to_sparse()), ValueError, "x must be a dense tensor, got torch.sparse_coo"),
        (lambda: rim(x.numpy()), TypeError, "x must be a tensor, got ndarray"),
        (lambda: rim(packed), TypeError, "got PackedSequence; torch.nn.utils.rnn.pad_packed_sequence makes one of it"),
        (lambda: rim(x, h), TypeError, r"state must be a pair of tensors \(h, c\), got Tensor"),
        (lambda: rim(x, (h, c, c)), TypeError, "state must be a pair .* got 3 of them"),
        (lambda: rim(x, (h, None)), TypeError, "state: c must be a tensor, got NoneType"),
        (lambda: rim(x, None, [[0] * 3] * 4), TypeError, "episode_starts must be a tensor, got list"),
        (lambda: LSTM(5, 18)(x, (h, c.double())), ValueError, "state: c must be torch.float32"),
        (lambda: LSTM(5, 18)(x.double()), ValueError, "x must be torch.float32"),
    ]:
        with pytest.raises(error, match=words):
            call()


@kinds
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float64, torch.bfloat16])
def test_episode_starts_may_have_any_dtype_and_any_strides(options, dtype):
    rim, x, starts = make(**options), torch.randn(4, 3, 5), torch.tensor([[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 1, 0]])
    expected = rim(x, state(), starts.float())[0]
    assert torch.equal(rim(x, state(), starts.to(dtype))[0], expected)
    assert torch.equal(rim(x, state(), starts.to(dtype).T.contiguous().T)[0], expected)


@kinds
@pytest.mark.parametrize("with_grad", [False, True])
def test_strides_do_not_matter(options, with_grad):
    rim, (h, c) = make(**options), state()
    x = torch.randn(5, 2, 3, 4).permute(3, 2, 1, 0)
    with torch.set_grad_enabled(with_grad):
        expected = rim(x.contiguous(), (h, c))[0]
        strided = (h.transpose(1, 2).contiguous().transpose(1, 2), torch.stack([c, c], -1)[..., 0])
        torch.testing.assert_close(rim(x, strided)[0], expected)
        same = h[:, :1].expand(1, 3, 18)
        torch.testing.assert_close(rim(x, (same, same))[0], rim(x, (same.contiguous(), same.contiguous()))[0])


@needs_c
@pytest.mark.parametrize(
    "name", ["weight_hh", "weight_ih", "bias_hh", "comm_qkv", "comm_out", "input_query", "input_key"]
)
@pytest.mark.parametrize("damage", ["dtype", "shape"])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("with_grad", [False, True])
def test_weights_that_do_not_fit_together_are_an_error_and_never_reach_the_loops_in_c(name, damage, heads, with_grad):
    rim = make(input_heads=heads)
    weight = getattr(rim.layers[0], name)
    other = (
        weight.double() if damage == "dtype" else weight[:, :2] if weight.dim() > 2 or "bias" in name else weight[:3]
    )
    setattr(rim.layers[0], name, torch.nn.Parameter(other.detach()))
    words = "must be torch.float32|must have shape|must make|[Ee]xpected|must match|same dtype"
    with torch.set_grad_enabled(with_grad), pytest.raises((ValueError, RuntimeError), match=words):
        rim(torch.randn(4, 3, 5), state())


# ---- cells that are not as built -------------------------------------------------------------------------------------


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return 2 * weight


def spectral(cell):
    weight = cell.weight_hh_orig
    return weight / torch.dot(cell.weight_hh_u, weight.flatten(1) @ cell.weight_hh_v)


ALTERED = {  # how a weight comes to be made of others, and what it should be
    "prune": (
        lambda cell: prune.l1_unstructured(cell, "weight_hh", 0.5),
        lambda cell: cell.weight_hh_orig * cell.weight_hh_mask,
    ),
    "parametrization": (
        lambda cell: parametrize.register_parametrization(cell, "weight_hh", Doubled()),
        lambda cell: 2 * cell.parametrizations.weight_hh.original,
    ),
    "weight_norm": (
        lambda cell: torch.nn.utils.weight_norm(cell, "weight_hh"),
        lambda cell: torch._weight_norm(cell.weight_hh_v, cell.weight_hh_g, 0),
    ),
    "spectral_norm": (lambda cell: torch.nn.utils.spectral_norm(cell, "weight_hh"), spectral),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("how", ALTERED)
def test_weights_made_of_other_weights_take_effect_also_after_steps_of_an_optimizer(how):
    alter, effective = ALTERED[how]
    rim, plain, x = make(num_layers=2).eval(), make(num_layers=2), torch.randn(4, 3, 5)
    alter(rim.layers[0])
    assert set(engine_of(rim).split(" and ")) == {engine_of(plain), "readable"}
    optimizer = torch.optim.SGD(rim.parameters(), 0.1)
    for _ in range(3):
        with torch.no_grad():
            for name, weight in plain.named_parameters():
                made = name == "layers.0.weight_hh"
                weight.copy_(effective(rim.layers[0]) if made else rim.get_parameter(name))
        output = rim(x)[0]
        torch.testing.assert_close(output, plain(x)[0])
        zeros = torch.zeros(2, 3, 18)
        torch.testing.assert_close(rim.step(x[0], (zeros, zeros)).h[-1], output[0])
        optimizer.zero_grad()
        output.square().sum().backward()
        optimizer.step()
    with pytest.raises(ValueError, match="cannot be dropped or forced while weight_hh is made of other"), rim.drop(1):
        rim(x)


@kinds
@pytest.mark.parametrize("with_grad", [False, True])
def test_hooks_of_a_cell_take_effect(options, with_grad):
    rim, x, calls = make(**options), torch.randn(4, 3, 5, requires_grad=True), []
    plain = rim(x)[0]
    hooks = [
        rim.layers[0].register_forward_pre_hook(lambda _, args: (2 * args[0], args[1])),
        rim.layers[0].register_forward_hook(lambda *_: calls.append("forward")),
        rim.layers[0].register_full_backward_pre_hook(lambda *_: calls.append("before backward")),
        rim.layers[0].register_full_backward_hook(lambda *_: calls.append("backward")),
    ]
    usual = engine_of(make(**options))
    assert engine_of(rim) == "readable"
    with torch.set_grad_enabled(with_grad), rim.trace() as trace:
        output, _ = rim(x)
    if with_grad:
        output.sum().backward()
    for hook in hooks:
        hook.remove()
    assert calls == ["forward"] * 4 + ["before backward", "backward"] * 4 * with_grad
    assert engine_of(rim) == usual
    with rim.trace() as expected:
        torch.testing.assert_close(output, rim(2 * x)[0])
    assert torch.equal(trace.active, expected.active) and not torch.equal(output, plain)
    torch.testing.assert_close(trace.communication, expected.communication)
    with rim.layers[0].register_forward_hook(lambda cell, args, state: (state[0], torch.zeros_like(state[1]))):
        if rim.layers[0].cell == "lstm":
            assert not rim(x)[1][1].any() and not torch.equal(rim(x)[0], plain)
        assert not rim.step(x[0], state()).c.any()


def test_a_subclass_has_its_own_equations():
    class Deaf(RIMCell):
        def communicate(self, h):
            message, weights = super().communicate(h)
            return 0 * message, weights

    rim, deaf, x = make(communication=False), make(), torch.randn(4, 3, 5)
    deaf.layers[0] = Deaf(5, 18, 6, 4)
    deaf.load_state_dict(rim.state_dict(), strict=False)
    torch.testing.assert_close(deaf(x)[0], rim(x)[0])
    assert engine_of(deaf) == "readable"


# ---- who wants plain operations --------------------------------------------------------------------------------------


@kinds
def test_transforms_of_torch_func_are_right(options):
    rim, x = make(**options), torch.randn(4, 3, 5)
    weights = {name: weight.detach() for name, weight in rim.named_parameters()}

    def loss(weights, x):
        return functional_call(rim, weights, (x,))[0].square().sum()

    rim(x)[0].square().sum().backward()
    for name, gradient in grad(loss)(weights, x).items():
        torch.testing.assert_close(gradient, rim.get_parameter(name).grad, rtol=1e-3, atol=1e-5)
    each = vmap(lambda row: rim(row.unsqueeze(1))[0].squeeze(1), in_dims=1, out_dims=1)(x)
    torch.testing.assert_close(each, rim(x)[0])
    two = {name: torch.stack([weight, 2 * weight]) for name, weight in weights.items()}
    with torch.no_grad():
        expected = [loss({name: pair[i] for name, pair in two.items()}, x) for i in range(2)]
        torch.testing.assert_close(vmap(loss, in_dims=(0, None))(two, x), torch.stack(expected))
    _, along = jvp(lambda x: loss(weights, x), (x,), (torch.ones_like(x),))
    torch.testing.assert_close(along, grad(loss, argnums=1)(weights, x).sum(), rtol=1e-3, atol=1e-4)
    with forward_ad.dual_level():
        dual = loss(weights, forward_ad.make_dual(x, torch.ones_like(x)))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, along)


@kinds
def test_a_traced_layer_is_the_layer(options):
    rim, x = make(**options), torch.randn(2, 4, 3, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that shapes become constants
        traced = torch.jit.trace(rim, (x[0],))
    torch.testing.assert_close(traced(x[1]), rim(x[1]))


@kinds
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_takes_inputs_and_states_of_either_type_and_is_close(options, dtype):
    rim, x = RIM(5, 18, 6, 6, **options), torch.randn(4, 3, 5)  # rounding may change who is active
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = rim(x.to(dtype), state(dtype))
    torch.testing.assert_close(output.float(), rim(x, state())[0], rtol=0.1, atol=0.1)


@needs_c
@kinds
def test_gradients_of_many_outputs_at_once_are_refused_in_one_sentence(options):
    rim, x = make(**options), torch.randn(4, 3, 5)
    with pytest.raises(RuntimeError, match="one output at a time: leave out is_grads_batched and vectorize"):
        torch.autograd.functional.jacobian(lambda x: rim(x)[0].sum((0, 1)), x, vectorize=True)


@needs_c
def test_the_engine_that_would_run_a_core_is_named(monkeypatch):
    assert engine_of(make()) == engine_of(torch.nn.Sequential(make(), make(num_layers=2))) == "C"
    assert engine_of(make(cell="gru")) == engine_of(make(comm_top_k=2)) == engine_of(make(activation="at_most")) == "C"
    assert engine_of(make(own_elements=True)) == engine_of(make(position_competition=True)) == "C"
    others = RIM(5, 129, 129, 4), make(dtype=torch.bfloat16), make(device="meta"), LSTM(5, 18)
    assert [engine_of(other) for other in others] == ["torch"] * 4
    monkeypatch.setattr(c_loops, "has_library", lambda dtype: False)
    assert engine_of(make()) == "torch"
