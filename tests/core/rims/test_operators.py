"""The loops in C as one operator: for torch.compile and torch.export."""

import pytest
import torch

from rims_rl import RIM
from rims_rl.core.rims.engines.choose import ENGINES, OPERATOR
from rims_rl.core.rims.engines.operators import scan
from rims_rl.core.rims.interventions import Intervened
from tests.helpers.engines import needs_c

pytestmark = needs_c

CASES = {
    "paper": {},
    "listen": {"asleep": "listen"},
    "drift": {"asleep": "drift"},
    "half listen": {"asleep": "half-listen"},
    "GRU": {"cell": "gru"},
    "a set, two heads": {"input_heads": 2},
    "positions": {"input_heads": 2, "position_competition": True},
    "no communication": {"communication": False},
    "no input attention": {"input_attention": False},
    "all active": {"num_active": 4},
    "at most": {"activation": "at_most"},
    "top k": {"comm_top_k": 2},
    "released": {"communication": "gated", "hear": "updates"},
}


def make(**options):
    torch.manual_seed(0)
    return RIM(5, 24, **{"num_rims": 4, "num_active": 2, **options})


def inputs(elements=1, steps=7, batch=3):
    x = torch.randn(steps, batch, elements, 5, dtype=torch.double, requires_grad=True)
    h, c = torch.randn(2, batch, 24, dtype=torch.double).requires_grad_()
    return x, h, c, torch.rand(steps, batch) < 0.2


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_the_operator_computes_what_the_readable_engine_does(options):
    cell = make(**options).double().cells[0]
    x, h, c, starts = inputs(elements=3 if "input_heads" in options else 1)
    weight, results = torch.randn(7, 3, 24, dtype=torch.double), []
    for engine in (OPERATOR, ENGINES["readable"]):
        assert engine.refusal(cell, x) is None
        output, *state = engine.run(cell, x, h, c, starts)
        loss = (output * weight).sum() + state[0].square().sum() + state[1].sin().sum()
        gradients = torch.autograd.grad(loss, (x, h, c, *cell.parameters()), allow_unused=True)
        results.append([output, *state, *gradients])
    for ours, readable in zip(*results, strict=True):
        if readable is not None:  # nobody's query is asked if all are active; the loops say that its gradient is zero
            torch.testing.assert_close(ours, readable, rtol=0, atol=1e-10)
        else:
            assert ours is None or not ours.any()


@pytest.mark.parametrize(
    "dropped, right", [((), True), ((0,), False), ((6,), True), ((0, 1), False), ((0, 6), True)], ids=str
)
def test_with_rims_dropped_it_is_not_used_if_it_took_others_for_those_who_keep_their_state(dropped, right):
    cell = RIM(5, 14, 7, 3, asleep="half-listen").cells[0]
    assert (OPERATOR.refusal(Intervened(cell, dropped, ()).cell, torch.randn(4, 2, 1, 5)) is None) == right


def test_torch_finds_the_operator_as_it_is_described():
    cell = make().cells[0]
    x, h, c, _ = (part.detach().float() for part in inputs())
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rims_rl.core.rims.engines.operators.scan", lambda *given: seen.append(given) or scan(*given))
        OPERATOR.run(cell, x, h, c)
    # not test_aot_dispatch: it compares what the operator keeps for its backward, of which some places stay empty
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    assert set(torch.library.opcheck(scan, seen[0], test_utils=checks).values()) == {"SUCCESS"}


def test_what_the_operator_does_not_know_it_leaves_to_others():
    x = torch.zeros(2, 1, 1, 5)
    assert OPERATOR.refusal(make(balance=0.1).cells[0], x)
    assert OPERATOR.refusal(make(input_dropout=0.1).cells[0], x)
    assert OPERATOR.refusal(make(input_dropout=0.1).eval().cells[0], x) is None
    assert OPERATOR.refusal(make(selection="soft").cells[0], x)


def test_an_exported_program_has_one_operation_for_a_layer_only_if_that_is_wanted():
    x, steps, batch = torch.randn(7, 3, 5), torch.export.Dim("steps", min=2), torch.export.Dim("batch", min=2)
    for engine, found in (("c", 1), ("auto", 0)):
        rim = make(engine=engine)
        shapes = ({0: steps, 1: batch},) if engine == "c" else None  # plain operations are of a known length
        program = torch.export.export(rim, (x,), dynamic_shapes=shapes)
        assert sum("rims_rl" in str(node.target) for node in program.graph.nodes) == found
        other = torch.randn(9, 2, 5) if engine == "c" else x
        torch.testing.assert_close(program.module()(other)[0], rim(other)[0])


@pytest.mark.slow
def test_a_compiled_layer_is_one_graph_and_the_same_to_the_bit():
    rim, x = make(), torch.randn(7, 3, 5)
    torch.manual_seed(0)
    gradients = []
    for run in (torch.compile(rim, fullgraph=True), rim):
        rim.zero_grad()
        output, (h, _) = run(x)
        (output.sum() + h.sum()).backward()
        gradients.append([output, *(parameter.grad.clone() for parameter in rim.parameters())])
    assert all(map(torch.equal, *gradients))
    with rim.trace() as trace:
        torch.compile(rim)(x)
    assert trace.active.shape == (7, 3, 4)
