"""A mechanism of one's own: each step of the cell can be overridden, and is honoured wherever RIMs run."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rims_rl import RIM, MlpRimsPolicy, RIMCell, register_core
from rims_rl.core import engine_of, per_rim
from rims_rl.core.rims.cell import MECHANISM
from rims_rl.core.rims.engines.choose import ENGINES
from rims_rl.exporting.policy_step import PolicyStep
from tests.helpers.code_blocks import run_python_blocks
from tests.helpers.engines import needs_c


class Later(RIMCell):
    def initial_state(self, batch):
        h, c = super().initial_state(batch)
        return h + 0.5, c - 0.5


class Curious(RIMCell):
    def attend(self, x, h):
        return torch.softmax(super().attend(x, h), -1)


class LastFirst(RIMCell):
    def choose_active(self, attention):
        return super().choose_active(attention).flip(-1)


class Doubled(RIMCell):
    def read(self, x, weights):
        return 2 * super().read(x, weights)


class Slow(RIMCell):
    def dynamics(self, read, h, c):
        h_new, c_new = super().dynamics(read, h, c)
        return (h + h_new) / 2, (c + c_new) / 2


class Hesitant(RIMCell):
    def take_over(self, attention, old, new):
        return (3 * old + new) / 4


class Fading(RIMCell):
    def while_asleep(self, old, new):
        return super().while_asleep(old, new) / 2


class Loud(RIMCell):
    def communicate(self, h):
        message, weights = super().communicate(h)
        return 3 * message, weights


class Terse(RIMCell):
    def message(self, received):
        return super().message(received) / 2


class Sociable(RIMCell):
    def who_hears(self, active):
        return ~super().who_hears(active)


class Restless(RIMCell):
    def update(self, x, h, c):
        updated = super().update(x, h, c)
        return updated._replace(h=updated.h + 0.1)


class Gated(RIMCell):
    def weight_shapes(self):
        return super().weight_shapes() | {"comm_gate": (self.num_rims, self.rim_size, 2 * self.rim_size)}

    def add_message(self, h, message):
        gate = torch.sigmoid(per_rim(torch.cat([h, message], -1), self.comm_gate))
        return h + gate * torch.tanh(message)


class Negated(RIMCell):
    def step(self, x, h, c):
        step = super().step(x, h, c)
        return step._replace(h=-step.h)


OWN = [Later, Curious, LastFirst, Doubled, Slow, Hesitant, Fading, Loud, Terse, Sociable, Restless, Gated, Negated]


def make(cell_class, **options):
    """A core with a mechanism of its own, and the paper's with the same weights."""
    torch.manual_seed(0)
    own = RIM(5, 18, 6, 4, cell_class=cell_class, **options)
    for weight in own.parameters():
        weight.data.mul_(2)
    paper = RIM(5, 18, 6, 4, **options)
    paper.load_state_dict(own.state_dict(), strict=False)
    return own, paper


def step_by_step(rim, x, starts):
    """By hand, from one call of the cell to the next."""
    (cell,), outputs, state = rim.layers, [], None
    for t in range(len(x)):
        first = cell.initial_state(x.shape[1])
        if state is None:
            state = first
        state = [torch.where(starts[t].unsqueeze(-1), new, now) for now, new in zip(state, first, strict=True)]
        state = cell(x[t], state)
        outputs.append(state[0])
    return torch.stack(outputs)


def test_every_step_of_the_mechanism_is_tried_here():
    overridden = {name for cell in OWN for name in vars(cell)} & MECHANISM
    assert MECHANISM - overridden == {"forward", "foreign", "forced_first", "stores", "_compete_among_rims"}


@pytest.mark.parametrize("cell_class", OWN)
def test_an_override_is_honoured_in_forward_with_gradients_in_trace_and_step(cell_class):
    own, paper = make(cell_class)
    x, starts = torch.randn(5, 3, 5), torch.rand(5, 3) < 0.3
    with own.trace() as trace:
        output, state = own(x, episode_starts=starts)
    torch.testing.assert_close(output, step_by_step(own, x, starts))
    assert not torch.allclose(output, paper(x, episode_starts=starts)[0])
    output.square().sum().backward()
    assert all(weight.grad is not None for weight in own.parameters())
    with torch.no_grad():
        last = own.step(x[-1], own.begin(own(x[:-1], episode_starts=starts[:-1])[1], starts[-1]))
    torch.testing.assert_close(last.h[0], output[-1])
    assert torch.equal(last.active, trace.active[-1]) and torch.equal(last.h, state[0])


@pytest.mark.parametrize("cell_class", OWN)
def test_it_runs_in_the_readable_engine_unless_it_says_otherwise(cell_class):
    own, paper = make(cell_class)
    assert engine_of(own) == "readable" and engine_of(paper) != "readable"
    says = type("Says", (cell_class,), {"engines": ("torch", "readable")})
    assert engine_of(RIM(5, 18, 6, 4, cell_class=says)) == "torch"
    assert engine_of(RIM(5, 18, 6, 4, cell_class=type("Child", (cell_class,), {}))) == "readable"


def test_a_subclass_that_changes_no_equation_stays_fast():
    class Named(RIMCell):
        def __init__(self, *args, name="mine", **kwargs):
            super().__init__(*args, **kwargs)
            self.name = name

        def extra_repr(self):
            return self.name

    assert engine_of(RIM(5, 18, 6, 4, cell_class=Named, name="yours")) == engine_of(RIM(5, 18, 6, 4))


def test_a_method_of_one_cell_alone_is_honoured_too():
    _, rim = make(RIMCell)
    x, before = torch.randn(5, 3, 5), None
    before = rim(x)[0]
    rim.layers[0].add_message = lambda h, message: h
    assert engine_of(rim) == "readable" and not torch.equal(rim(x)[0], before)


@pytest.mark.parametrize("cell_class", OWN)
def test_rims_can_be_dropped_and_forced(cell_class):
    own, _ = make(cell_class)
    x = torch.randn(5, 3, 5)
    with own.drop(2), own.trace() as trace:
        output, _ = own(x)
    assert not trace.active[..., 2].any() and not output[..., 6:9].any()
    with own.force(5), own.trace() as trace:
        own(x)
    if cell_class is not LastFirst:
        assert trace.active[..., 5].all()


@pytest.mark.parametrize("cell_class", OWN)
def test_a_policy_honours_it_and_so_does_its_export(cell_class):
    name = f"own-{cell_class.__name__}"
    register_core(name, RIM, cell_class=cell_class)
    box = spaces.Box(-1, 1, (5,))
    torch.manual_seed(0)
    policies = [
        MlpRimsPolicy(box, spaces.Discrete(3), lambda _: 0.0, core=core, num_rims=6, num_active=4, rim_size=3)
        for core in (name, "rims")
    ]
    own, paper = (policy.eval() for policy in policies)
    for weight in own.core.parameters():
        weight.data.mul_(4)
    paper.load_state_dict(own.state_dict(), strict=False)
    state = other = exported = (torch.zeros(1, 2, 18), torch.zeros(1, 2, 18))
    starts = torch.ones(2, dtype=torch.bool)
    program = torch.export.export(PolicyStep(own, box).eval(), (torch.zeros(2, 5), *exported, starts)).module()
    for observation in torch.randn(6, 2, 5):
        _, state = own.predict(observation.numpy(), tuple(map(np.asarray, state)), starts.numpy())
        _, other = paper.predict(observation.numpy(), tuple(map(np.asarray, other)), starts.numpy())
        found = program(observation, *exported, starts)
        exported, starts = (found["next_h"], found["next_c"]), torch.zeros(2, dtype=torch.bool)
        np.testing.assert_allclose(torch.stack(exported).detach(), state, rtol=1e-3, atol=1e-4)
    assert not np.allclose(state, other, atol=1e-3)


@pytest.mark.parametrize("engine", [pytest.param(name, marks=needs_c if name == "c" else ()) for name in ENGINES])
def test_an_engine_that_is_asked_for_is_the_one_or_a_warning_says_why_not(engine, recwarn):
    rim, _ = make(RIMCell, engine=engine)
    x = torch.randn(4, 2, 5)
    torch.testing.assert_close(rim(x)[0], make(RIMCell, engine="readable")[0](x)[0], rtol=1e-4, atol=1e-5)
    assert not recwarn
    own = RIM(5, 18, 6, 4, cell_class=Gated, engine=engine)
    own(x)
    said = [str(warning.message) for warning in recwarn]
    expected = [] if engine == "readable" else [
        f"engine={engine!r} cannot run this layer, since Gated has equations of its own; readable does"
    ]  # fmt: skip
    assert said == expected


def test_what_c_does_not_know_runs_in_torch_and_says_so(recwarn):
    rim = RIM(5, 129, 129, 4, engine="c")
    rim(torch.randn(4, 2, 5))
    assert "129 RIMs or 1 elements are too many for the loops in C; torch does" in str(recwarn.pop().message)
    RIM(5, 18, 6, 4, position_competition=True, engine="torch")(torch.randn(4, 2, 5))
    assert "no position_competition or own_elements; readable does" in str(recwarn.pop().message)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "fast"}, "engine must be 'auto', 'c', 'torch', 'readable', got 'fast'"),
        ({"cell_class": torch.nn.LSTMCell}, "cell_class must be RIMCell or a subclass"),
        ({"cell_class": "GatedCell"}, "cell_class must be RIMCell or a subclass of it, got 'GatedCell'"),
    ],
)
def test_what_is_no_engine_and_no_cell_is_named(options, words):
    with pytest.raises(ValueError, match=words):
        RIM(5, 18, 6, 4, **options)


def test_copies_have_the_same_mechanism():
    own, _ = make(Gated)
    x = torch.randn(4, 2, 5)
    assert torch.equal(copy.deepcopy(own)(x)[0], own(x)[0])


def test_the_example_of_the_documentation_runs():
    found = run_python_blocks("docs/how-to/change_the_mechanism.md")
    assert found["output"].shape == (7, 3, 60) and engine_of(found["rim"]) == "readable"
    policy = MlpRimsPolicy(spaces.Box(-1, 1, (5,)), spaces.Discrete(3), lambda _: 0.0, core="gated", rim_size=3)
    assert "comm_gate" in dict(policy.core.layers[0].named_parameters())
