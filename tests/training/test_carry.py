"""Parts of a trained agent in a new one: copied and frozen to the bit, or not there; and progressive networks."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env

from rims_rl.agents import RecurrentA2C, RecurrentPPO
from rims_rl.agents.policies.progressive import check_column, load_columns
from rims_rl.agents.policies.rims_policies import PARTS, part_of
from rims_rl.agents.saved.policy_files import describe_policy, load_policy, save_policy
from rims_rl.cli.app import with_flags
from rims_rl.common.errors import UserError
from rims_rl.training.carry import Agent, Carry, carry_over, check_carry, freeze, parse_carry
from tests.helpers.agents import Anything, box, image

RIMS = {"core": "rims", "num_rims": 4, "num_active": 2, "rim_size": 6, "net_arch": [8]}
LSTM = {"core": "lstm", "num_rims": 2, "num_active": 1, "rim_size": 3, "net_arch": [8]}


def agent(policy_kwargs, seed=0, observations=None, actions=3, algorithm=RecurrentPPO):
    env = make_vec_env(lambda: Anything(observations or box(5), spaces.Discrete(actions)), 2, seed=0)
    options = {"n_steps": 16} if algorithm is RecurrentA2C else {"n_steps": 16, "batch_size": 16, "n_epochs": 2}
    policy = "CnnRimsPolicy" if observations is not None and len(observations.shape) == 3 else "MlpRimsPolicy"
    return algorithm(policy, env, seed=seed, policy_kwargs=policy_kwargs, **options)


def whole(model):
    return Agent(model.policy, normalized=False, actions=None)


def copies(policy):
    return {name: weight.detach().clone() for name, weight in policy.named_parameters()}


def rim(weights, k):
    """The slices of RIM k."""
    shared = ("input_key", "input_value")
    return {n: w[k] for n, w in weights.items() if part_of(n) == "core" and n.rpartition(".")[2] not in shared}


def same(a, b):
    assert a
    return all(torch.equal(weight, b[name]) for name, weight in a.items())


def test_what_is_not_named_starts_anew_and_rims_go_as_the_core_unless_told():
    assert parse_carry("encoder=finetune") == Carry("finetune", "reinit", "reinit")
    assert parse_carry("encoder=freeze, core=freeze, heads=finetune") == Carry("freeze", "freeze", "finetune")
    assert parse_carry("core=freeze,rims=0,2") == Carry(core="freeze", rims={0: "freeze", 2: "freeze"})
    chosen = parse_carry("core=finetune,rims=0:freeze,2,heads=finetune")
    assert chosen == Carry(core="finetune", heads="finetune", rims={0: "freeze", 2: "finetune"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("encode=freeze", "'encode' is no part, or is there twice; did you mean encoder?"),
        ("core=freeze,core=reinit", "'core' is no part, or is there twice"),
        ("freeze", "'freeze' is no part, or is there twice; write part=treatment"),
        ("core=frozen", "'frozen' must be finetune, freeze or reinit"),
        ("core=freeze,rims=a", "rims must be numbers, as in rims=0,2"),
        ("core=freeze,rims=²", "rims must be numbers, as in rims=0,2"),
        ("core=freeze,rims=0:frozen", "'frozen' must be finetune"),
        ("rims=0", "takes nothing over"),
        ("encoder=freeze,rims=0", "rims are of the core, which starts anew; give core=finetune"),
        ("core=reinit", "takes nothing over; give one of encoder, core, heads as finetune or freeze"),
    ],
)
def test_a_mistake_in_what_to_carry_is_one_sentence(text, words):
    with pytest.raises(UserError) as error:
        parse_carry(text)
    said = with_flags(str(error.value))
    assert said.startswith(f"--carry {text}") and words in said


@pytest.mark.parametrize("text", ["encoder=finetune,core=freeze", "encoder=freeze,heads=freeze", "heads=finetune"])
def test_parts_are_carried_over_to_the_bit_and_what_is_frozen_stays(text):
    source, target = (agent(RIMS, seed, image(1, 36, 36)) for seed in (0, 1))
    carry, there, before = parse_carry(text), copies(source.policy), copies(target.policy)
    check_carry(carry, whole(target), whole(source), "it")
    freeze(carry, target.policy)
    carry_over(carry, target.policy, source.policy)
    begun = copies(target.policy)
    target.learn(64)
    trained = copies(target.policy)
    for part in PARTS:
        names = [name for name in begun if part_of(name) == part]
        carried = there if carry.carries(part) else before
        assert same({name: carried[name] for name in names}, begun)
        frozen = getattr(carry, part) == "freeze"
        assert [torch.equal(begun[name], trained[name]) for name in names] == [frozen] * len(names)


@pytest.mark.parametrize("algorithm", [RecurrentPPO, RecurrentA2C])
def test_single_rims_are_carried_and_frozen_and_the_others_are_new_and_learn(algorithm):
    source, target = agent(RIMS, 0), agent(RIMS, 1, algorithm=algorithm)
    carry, there, before = parse_carry("core=finetune,rims=0:freeze,2"), copies(source.policy), copies(target.policy)
    freeze(carry, target.policy)
    carry_over(carry, target.policy, source.policy)
    begun = copies(target.policy)
    target.learn(64)
    trained = copies(target.policy)
    for k, start in enumerate((there, before, there, before)):
        assert same(rim(start, k), rim(begun, k))
        assert same(rim(begun, k), rim(trained, k)) == (k == 0)
    assert torch.equal(begun["lstm_actor.layers.0.input_key"], there["lstm_actor.layers.0.input_key"])
    assert not torch.equal(begun["lstm_actor.layers.0.input_key"], trained["lstm_actor.layers.0.input_key"])


@pytest.mark.parametrize(
    ("core", "whole_weights"),
    [
        ("scoff", ["input_key", "weight_ih", "bias_hh", "schema_query", "schema_key"]),
        ("rims-workspace", ["input_key", "slot_qkv", "slot_memory", "slot_gates", "slot_bias"]),
        ("brims", ["input_key", "top_down.0.weight"]),
    ],
)
def test_what_rims_share_is_carried_as_the_core_is(core, whole_weights):
    source, target = (agent({**RIMS, "core": core}, seed) for seed in (0, 1))
    before = copies(target.policy)
    with torch.no_grad():  # biases of gates begin alike
        for weight in source.policy.core.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    there = copies(source.policy)
    carry = parse_carry("core=freeze,rims=0,2")
    freeze(carry, target.policy)
    carry_over(carry, target.policy, source.policy)
    begun = copies(target.policy)
    target.learn(64)
    trained = copies(target.policy)
    shared = [name for name in begun if any(name.endswith(f".{weight}") for weight in whole_weights)]
    assert len(shared) >= len(whole_weights)
    for name in shared:
        assert torch.equal(begun[name], there[name]) and torch.equal(trained[name], there[name]), name
    for name in (name for name in begun if name.endswith(("input_query", "comm_qkv", "comm_out", "write_gate"))):
        for k, start in enumerate((there, before, there, before)):
            assert torch.equal(begun[name][k], start[name][k]), name
            assert k in (1, 3) or torch.equal(trained[name][k], begun[name][k]), name
        assert not torch.equal(trained[name], begun[name]), name


def test_what_does_not_fit_is_named_part_by_part():
    here = agent(RIMS)

    def sentence(carry, there):
        with pytest.raises(UserError) as error:
            check_carry(parse_carry(carry), whole(here), there, "--init-from it")
        return str(error.value)

    other = whole(agent(RIMS, observations=box(7), actions=4))
    text = sentence("core=finetune,heads=finetune", other)
    assert "core, where 'lstm_actor.layers.0.input_value' is (24, 7) there, and (24, 5) here; heads, where " in text
    assert "'action_net.weight' is (4, 8) there, and (3, 8) here" in text
    check_carry(parse_carry("encoder=finetune"), whole(here), other, "")  # which has no weights
    active = whole(agent({**RIMS, "num_active": 3, "rim_size": 5}))._replace(normalized=True)
    text = sentence("encoder=freeze,core=finetune", active)
    assert "encoder, with normalize=True there and False here; core, with num_active=3 there and 2 here, rim_" in text
    assert text.endswith("rim_size=5 there and 6 here")
    deeper = whole(agent({**RIMS, "net_arch": [8, 8]}))
    assert "heads, where 'mlp_extractor.policy_net.2.weight' is (8, 8) there, and missing here" in sentence(
        "heads=finetune", deeper
    )
    picture = whole(agent(RIMS, observations=image(1, 36, 36)))
    assert sentence("core=finetune", picture) == (
        "--init-from it reads observations of another kind: it has policy='CnnRimsPolicy', and this run 'MlpRimsPolicy'"
    )
    assert "no RIM 4; with num_rims=4 the last is 3" in sentence("core=freeze,rims=1,4", whole(here))
    fire = whole(here)._replace(actions="NOOP UP FIRE")
    assert "heads, because the actions are NOOP UP FIRE there, and None here" in sentence("heads=finetune", fire)
    check_carry(parse_carry("core=finetune"), whole(here), fire, "")
    here = agent(LSTM)
    assert "the core 'lstm' has no RIMs to choose from" in sentence("core=freeze,rims=1", whole(here))


def test_weight_decay_which_would_change_single_frozen_rims_is_refused():
    source, target = agent(RIMS), agent({**RIMS, "optimizer_kwargs": {"weight_decay": 0.1}})
    with pytest.raises(UserError, match=r"weight_decay=0\.1 of the optimizer would change frozen RIMs; leave it out"):
        check_carry(parse_carry("core=finetune,rims=0:freeze,2"), whole(target), whole(source), "it")
    check_carry(parse_carry("core=freeze"), whole(target), whole(source), "it")
    check_carry(parse_carry("core=finetune,rims=0"), whole(target), whole(source), "it")


@pytest.mark.parametrize("observations", [image(4, 36, 36), box(5)], ids=["image", "vector"])
def test_frozen_columns_never_change_and_laterals_learn(observations, tmp_path):
    sources = [agent(LSTM, seed, observations, actions) for seed, actions in ((1, 3), (2, 5))]
    for source in sources:
        source.learn(32)
    target = agent({**LSTM, "columns": 2}, 0, observations)
    policy = target.policy
    for source in sources:
        check_column(policy, source.policy, "")
    load_columns(policy, [source.policy for source in sources])
    for k, source in enumerate(sources):
        assert same(source.policy.core.state_dict(), policy.core.columns[k].state_dict())
        kept, given = policy.features_extractor.columns[k].state_dict(), source.policy.features_extractor.state_dict()
        assert all(torch.equal(kept[name], weight) for name, weight in given.items())
    begun = copies(policy)
    target.learn(96)
    frozen = [name for name, weight in policy.named_parameters() if not weight.requires_grad]
    assert len(frozen) == (2 * (8 + 4) if len(observations.shape) == 3 else 2 * 4)
    for name, weight in policy.named_parameters():
        assert torch.equal(weight, begun[name]) == (name in frozen), name
    laterals = [weight for name, weight in policy.named_parameters() if "lateral" in name]
    assert len(laterals) == (5 * 3 if len(observations.shape) == 3 else 2 * 3)
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in laterals)

    save_policy(policy, tmp_path, describe_policy(policy, {**LSTM, "columns": 2}))
    again, _ = load_policy(tmp_path)
    observation = np.stack([observations.sample() for _ in range(2)])
    state = None
    for _ in range(3):  # with memories of all columns
        action, new = again.predict(observation, state, deterministic=True)
        expected, state = policy.predict(observation, state, deterministic=True)
        assert (action == expected).all()
        for a, b in zip(new, state, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
    assert state[0].shape == (1, 2, 3 * 6)


def test_a_frozen_column_computes_what_its_agent_computed_and_the_new_one_reads_it():
    source, target = agent(LSTM, 1, image(4, 36, 36)), agent({**LSTM, "columns": 1}, 0, image(4, 36, 36))
    load_columns(target.policy, [source.policy])
    images = torch.randint(0, 256, (6, 4, 36, 36), dtype=torch.uint8)
    encoder, core = target.policy.features_extractor, target.policy.core
    features = target.policy.encode(images)
    alone = source.policy.encode(images)
    torch.testing.assert_close(features[:, -encoder.width :], alone)
    starts = torch.zeros(6, 1)
    _, (h, _) = core(features.unsqueeze(1), None, starts)
    _, (h_alone, _) = source.policy.core(alone.unsqueeze(1), None, starts)
    torch.testing.assert_close(h[..., -6:], h_alone)
    with torch.no_grad():
        encoder.columns[0].cnn[0].weight.zero_()  # another column, other features of the new one
    changed = target.policy.encode(images)
    assert not torch.allclose(features[:, : encoder.width], changed[:, : encoder.width], atol=1e-6)


def test_what_cannot_be_columns_is_one_sentence():
    with pytest.raises(ValueError, match='columns=1 needs critic="shared" and a core that reads one vector'):
        agent({**RIMS, "columns": 1})
    with pytest.raises(ValueError, match="got critic='separate' and core='lstm'"):
        agent({**LSTM, "columns": 1, "critic": "separate"})
    target = agent({**LSTM, "columns": 1})
    for other in (agent(LSTM, observations=box(7)), agent({**LSTM, "columns": 1}), agent({**LSTM, "rim_size": 4})):
        with pytest.raises(UserError, match=r"--column it does not fit as a column: (encoder|core), where '"):
            check_column(target.policy, other.policy, "--column it")
