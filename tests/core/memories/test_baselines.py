"""The cores RIMs are compared with, and how cores are found by name."""

import pytest
import torch

from rims_rl import RIM
from rims_rl.core import GRU, LSTM, RNN, Feedforward, core_factory, make_core, own_layers, register_core

FAMILY = ["scoff", "brims", "rims-workspace"]
CORES = ["rims", "rims-released", *FAMILY, "block-lstm", "block-gru", "lstm", "gru", "rnn", "none"]
SLOTS = 4 * 128  # of rims-workspace, beside its units


def core(name, input_size=5, hidden_size=12, num_layers=2):
    return make_core(name, input_size, hidden_size, num_rims=4, num_active=2, num_layers=num_layers).double()


@pytest.mark.parametrize("name", CORES)
def test_every_core_has_the_protocol(name):
    made = core(name)
    output, (h, c) = made(torch.randn(7, 3, 5).double())
    width = 12 + (SLOTS if name == "rims-workspace" else 0)
    assert (made.input_size, made.hidden_size, made.num_layers) == (5, width, 2)
    assert output.shape == (7, 3, made.output_size) and h.shape == c.shape == (2, 3, width)
    assert made.output_size == (5 if name == "none" else 12)


@pytest.mark.parametrize("name", CORES)
def test_splitting_and_resetting_are_the_same_in_every_core(name):
    made = core(name)
    x = torch.randn(8, 2, 5).double()
    starts = torch.zeros(8, 2)
    starts[5, 0] = starts[2, 1] = 1
    together, last = made(x, None, starts)
    first, state = made(x[:4], None, starts[:4])
    second, split_last = made(x[4:], state, starts[4:])
    torch.testing.assert_close(together, torch.cat([first, second]), rtol=0, atol=1e-12)
    torch.testing.assert_close(last, split_last, rtol=0, atol=1e-12)
    for env, start in ((0, 5), (1, 2)):
        alone = torch.cat([made(x[:start, env : env + 1])[0], made(x[start:, env : env + 1])[0]])
        torch.testing.assert_close(together[:, env : env + 1], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("ours", "torchs"), [(LSTM, torch.nn.LSTM), (GRU, torch.nn.GRU), (RNN, torch.nn.RNN)])
def test_baselines_are_torchs_own(ours, torchs):
    made, other = ours(5, 12, 2), torchs(5, 12, 2)
    other.load_state_dict({name.split(".")[-1]: weight for name, weight in made.state_dict().items()})
    x = torch.randn(7, 3, 5)
    torch.testing.assert_close(made(x)[0], other(x)[0])


def test_none_has_no_memory_and_no_parameters():
    made = Feedforward(5, 12)
    x, state = torch.randn(7, 3, 5), (torch.randn(1, 3, 12), torch.randn(1, 3, 12))
    output, after = made(x, state)
    assert torch.equal(output, x) and all(map(torch.equal, after, state)) and not list(made.parameters())


@pytest.mark.parametrize("name", ["rmc", "ntm", "dnc", "entnet", *CORES])
def test_a_new_state_shares_no_memory_with_the_old_one_and_a_reset_forgets_what_is_not_finite(name):
    made = core(name, hidden_size=16)
    x, starts = torch.randn(3, 2, made.input_size).double(), torch.tensor([[1, 0], [0, 0], [0, 0]])
    state = [part.detach() for part in made(x)[1]]
    before = [part.clone() for part in state]
    _, after = made(x, tuple(state))
    for part in after:
        part.detach().fill_(7)
    assert all(map(torch.equal, state, before))
    expected = made(x, tuple(state), starts)
    for part in state:
        part[:, 0] = torch.inf
    torch.testing.assert_close(made(x, tuple(state), starts), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", [*CORES, "rmc"])
def test_without_a_number_of_layers_a_core_has_its_own(name):
    assert make_core(name, 5, 12, 3, 2, None).num_layers == own_layers(name) == (2 if name == "brims" else 1)


def one_layer_more(input_size, hidden_size, num_layers):
    return GRU(input_size, hidden_size, num_layers + 1)


def test_a_factory_that_does_not_say_how_many_layers_gets_one():
    assert make_core(f"{__name__}.one_layer_more", 5, 12, 3, 2, None).num_layers == 2


def test_a_users_own_core_is_found_by_name_or_dotted_path():
    class Own(LSTM):
        pass

    register_core("own", Own)
    register_core("own", Own)  # again is fine: modules are imported twice
    assert isinstance(make_core("own", 5, 12, 4, 2, 1), Own)
    assert core_factory("rims_rl.core.GRU") is GRU
    with pytest.raises(ValueError, match="'own' is registered already"):
        register_core("own", GRU)


def test_a_name_with_options_has_them_and_no_others():
    register_core("deaf", RIM, communication=False)
    register_core("deaf", RIM, communication=False)
    assert make_core("deaf", 5, 12, 4, 2, 1, cell="gru").layers[0].communication is False
    with pytest.raises(
        ValueError, match="core 'deaf' stands for communication=False, got communication=True; leave it"
    ):
        make_core("deaf", 5, 12, 4, 2, 1, communication=True)
    with pytest.raises(ValueError, match="'deaf' is registered already"):
        register_core("deaf", RIM, communication="gated")


@pytest.mark.parametrize(("name", "torchs"), [("block-lstm", torch.nn.LSTMCell), ("block-gru", torch.nn.GRUCell)])
def test_blocks_are_separate_cells_that_read_the_same(name, torchs):
    made = core(name, num_layers=1)
    (layer,), x = made.layers, torch.randn(1, 3, 5).double()
    state = tuple(torch.randn(1, 3, 12).double() for _ in range(2))
    output, _ = made(x, state)
    for k in range(4):
        cell = torchs(layer.input_value_size, 3).double()
        cell.load_state_dict({n: getattr(layer, n)[k] for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")})
        own = [part[0, :, 3 * k : 3 * k + 3] for part in state]
        expected = cell(x[0] @ layer.input_value.T, own[0] if name == "block-gru" else tuple(own))
        torch.testing.assert_close(output[0, :, 3 * k : 3 * k + 3], expected if name == "block-gru" else expected[0])


def no_core(input_size, hidden_size, num_layers=1):
    return torch.nn.Linear(input_size, hidden_size)


def test_what_is_no_core_is_named():
    with pytest.raises(ValueError, match=r"no_core' must make a rims_rl\.core\.Core, .*got Linear"):
        make_core(f"{__name__}.no_core", 5, 12, 4, 2, 1)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rim", "did you mean 'rims'"),
        ("perceptron", "dotted path"),
        ("no.such.Core", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_an_unknown_core_is_answered_with_what_there_is(name, words):
    with pytest.raises(ValueError, match=words):
        core_factory(name)


def test_an_option_that_the_core_does_not_have_is_named():
    with pytest.raises(ValueError, match=r"'lstm' has no option 'cell'"):
        make_core("lstm", 5, 12, 4, 2, 1, cell="gru")
    assert isinstance(make_core("rims", 5, 12, 4, 2, 1, cell="gru"), RIM)


@pytest.mark.parametrize("name", ["lstm", "gru", "none"])
def test_bad_inputs_of_baselines_are_named(name):
    made = core(name)
    good = torch.zeros(3, 2, 5).double()
    state = torch.zeros(2, 2, 12).double()
    with pytest.raises(ValueError, match=r"x must be \(T, B, 5\), got shape \(3, 2, 4\)"):
        made(good[..., :4])
    with pytest.raises(ValueError, match=r"state: c must have shape \(2, 2, 12\), got \(1, 2, 12\)"):
        made(good, (state, state[:1]))
    with pytest.raises(ValueError, match=r"episode_starts must have shape \(3, 2\), got \(2, 3\)"):
        made(good, None, torch.zeros(2, 3))
