"""The memories of the paper's tables: RMC, NTM, DNC, EntNet, the Transformer; partly also RIMs and those of torch."""

import pytest
import torch
import torch.nn.functional as F

from rims_rl.core import NTM, make_core
from rims_rl.core.memories.dnc import _allocation, _link
from rims_rl.core.memories.entnet import _EntNetCell
from rims_rl.supervised.task import load
from rims_rl.supervised.tasks.copying import Copying

FIXED = ["rmc", "ntm", "dnc", "entnet"]
SMALL = {"ntm": {"slots": 5, "slot_size": 3}, "dnc": {"slots": 5, "slot_size": 3, "read_heads": 2}}


def core(name, num_layers=2):
    torch.manual_seed(0)
    return make_core(name, 5, 8, 2, 1, num_layers, **SMALL.get(name, {})).double()


@pytest.mark.parametrize("name", [*FIXED, "transformer"])
def test_splitting_and_resetting_change_nothing(name):
    made = core(name)
    x, starts = torch.randn(8, 2, 5).double(), torch.zeros(8, 2)
    starts[5, 0] = starts[2, 1] = 1
    together, last = made(x, None, starts)
    assert together.shape == (8, 2, made.output_size)
    first, state = made(x[:4], None, starts[:4])
    second, split_last = made(x[4:], state, starts[4:])
    torch.testing.assert_close(together, torch.cat([first, second]), rtol=0, atol=1e-12)
    torch.testing.assert_close(last, split_last, rtol=0, atol=1e-12)
    for env, start in ((0, 5), (1, 2)):
        alone = torch.cat([made(x[:start, env : env + 1])[0], made(x[start:, env : env + 1])[0]])
        torch.testing.assert_close(together[:, env : env + 1], alone, rtol=0, atol=1e-12)
    assert not torch.allclose(together[5, 0], made(x)[0][5, 0])  # so there is something to forget


@pytest.mark.parametrize("name", FIXED)
def test_the_state_has_the_packed_width_and_zeros_are_a_fresh_one(name):
    made = core(name)
    x = torch.randn(3, 2, 5).double()
    zeros = torch.zeros(2, 2, made.hidden_size).double()
    output, (h, c) = made(x, (zeros, zeros))
    assert h.shape == c.shape == zeros.shape
    assert torch.equal(output, made(x)[0])


@pytest.mark.parametrize("name", [*FIXED, "transformer", "lstm", "gru"])
def test_gradients_are_right(name):
    made = core(name, num_layers=1)
    x = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        state = made(torch.randn(2, 2, 5).double())[1]  # a used memory: in a fresh one all slots are equal
    weights = [weight for weight in made.parameters() if weight.numel() < 40]
    assert torch.autograd.gradcheck(lambda x, *_: made(x, state)[0], (x, *weights), fast_mode=True)


# NTM first has to learn to point at all, so it takes long.
@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("rims", 5e-3),
        ("scoff", 5e-3),
        pytest.param("brims", 5e-3, marks=pytest.mark.slow),
        ("rims-workspace", 5e-3),
        ("lstm", 1e-2),
        ("gru", 1e-2),
        ("rmc", 5e-3),
        ("ntm", 1e-2),
        ("dnc", 1e-2),
        ("entnet", 5e-3),
        ("transformer", 2e-3),
    ],
)
def test_it_learns_to_copy_two_digits(name, rate):
    torch.manual_seed(0)
    slots = {"ntm": "{slots: 8, slot_size: 8}", "dnc": "{slots: 8, slot_size: 8, read_heads: 1}"}
    settings = [
        "digits=2",
        "span=2",
        "test_spans=[2]",
        "hidden_size=32",
        "num_rims=2",
        "num_active=1",
        "embedding_size=12",
        *([f"core_kwargs={slots[name]}"] if name in slots else []),
    ]
    task = Copying(load(Copying, [f"core={name}", *settings]))
    network = task.network()
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    for index in range(800):
        loss = task.loss(network, *task.batch(0, index))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        if index % 20 == 19 and (right := task.tests(network, 100)["span 2"]["accuracy"]) > 0.9:
            break
    assert right > 0.9


def test_dnc_allocates_the_slots_that_are_used_least():
    # sorted 0.1, 0.5, 0.9: 0.9, then 0.5 of the 0.1 that is left over, then 0.1 of 0.1 * 0.5
    usage = torch.tensor([[0.5, 0.1, 0.9]])
    torch.testing.assert_close(_allocation(usage), torch.tensor([[0.05, 0.9, 0.005]]))


def test_dnc_links_slots_in_the_order_of_writing():
    """After writing to slots 2, 0 and 1, the one after 2 is 0, and the one after 0 is 1."""
    links, last = torch.zeros(1, 3, 3), torch.zeros(1, 3)
    for slot in (2, 0, 1):
        links, last = _link(links, last, F.one_hot(torch.tensor([slot]), 3).float())
    expected = torch.zeros(3, 3)
    expected[0, 2] = expected[1, 0] = 1
    torch.testing.assert_close(links[0], expected)


def test_ntm_moves_its_head_by_one_slot():
    cell = NTM(1, 4, slots=5, slot_size=2).layers[0]
    said = torch.zeros(8)  # key 2, sharpness, gate, moves 3, focus
    said[3], said[4], said[7] = -50.0, 50.0, 50.0  # by location, to the next slot, sharply
    with torch.no_grad():
        cell.address["read"].weight.zero_()
        cell.address["read"].bias.copy_(said)
    before = F.one_hot(torch.tensor([1]), 5).float()
    after = cell._weights("read", torch.zeros(1, 4), torch.rand(1, 5, 2), before)
    torch.testing.assert_close(after, F.one_hot(torch.tensor([2]), 5).float(), atol=1e-4, rtol=0)


def test_entnet_keeps_its_blocks_at_length_one_and_starts_with_its_keys():
    cell = _EntNetCell(5, 12, 3)
    fresh = cell.start()["memory"].expand(2, -1, -1)
    memory = cell.step(torch.randn(2, 5), {"memory": fresh})[1]["memory"]
    torch.testing.assert_close(memory.norm(dim=-1), torch.ones(2, 3))
    torch.testing.assert_close(cell.keys.norm(dim=-1), torch.ones(3))


def test_the_transformer_does_not_see_the_future():
    made = core("transformer")
    x = torch.randn(6, 2, 5).double()
    changed = x.clone()
    changed[4:] = 0
    assert torch.equal(made(x)[0][:4], made(changed)[0][:4])
    assert not torch.allclose(made(x)[0][4], made(changed)[0][4])


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("rmc", 9, "hidden_size must be a multiple of num_rims \\* heads = 2 \\* 2, got 9; 8 would do"),
        ("entnet", 9, "hidden_size must be a multiple of num_rims=2, got 9; 8 would do"),
        ("transformer", 9, "hidden_size must be even and a multiple of heads=4, got 9; 8 would do"),
    ],
)
def test_a_size_that_does_not_divide_is_answered_with_one_that_does(name, size, words):
    with pytest.raises(ValueError, match=words):
        make_core(name, 5, size, 2, 1, 1)
