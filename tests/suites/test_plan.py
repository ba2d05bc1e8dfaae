"""What a suite's file means: its grid of jobs, what their hashes cover, and what is wrong with a bad one."""

import pytest
import yaml

from rims_rl.common.errors import UserError
from rims_rl.config.zoo import paper_scores
from rims_rl.suites.job import arguments_of, settings_of
from rims_rl.suites.plan import read_plan, shipped
from rims_rl.training.train import build, resolve_arguments

SUITE = {
    "title": "a test",
    "envs": ["CartPole-v1", "PickupKnown"],
    "algos": {"ppo": {"n_steps": 64}, "a2c": {}},
    "cores": {"rims": {}, "small": {"core": "rims", "rim_size": 8, "a2c": {"learning_rate": 1e-4}}},
    "seeds": [0, 1],
    "steps": 1000,
    "evaluation": {"episodes": 10},
    "report": "atari",
}


@pytest.fixture
def plan_of(tmp_path):
    """The plan of SUITE with changes; None removes a key."""

    def read(**changes):
        path = tmp_path / "mine.yml"
        data = {key: value for key, value in (SUITE | changes).items() if value is not None}
        path.write_text(yaml.safe_dump(data, sort_keys=False))
        return read_plan(str(path))

    return read


def test_the_grid_is_complete_and_seeds_come_last(plan_of):
    plan = plan_of()
    assert plan.name == "mine" and len({job.hash for job in plan.jobs}) == len(plan.jobs) == 2 * 2 * 2 * 2
    assert [job.seed for job in plan.jobs] == [0] * 8 + [1] * 8  # a suite that is cut short has whole seeds


def test_overrides_of_algorithm_core_and_both_are_layers_over_the_zoo(plan_of):
    configs = {job.group: job.definition["config"] for job in plan_of(overrides={"n_steps": 32, "gamma": 0.5}).jobs}
    assert all(config["n_timesteps"] == 1000 and config["gamma"] == 0.5 for config in configs.values())
    small = configs["CartPole-v1", "a2c", "small"]
    assert (small["core"], small["rim_size"], small["learning_rate"], small["n_steps"]) == ("rims", 8, 1e-4, 32)
    other = configs["CartPole-v1", "ppo", "small"]
    assert (other["rim_size"], other["learning_rate"], other["n_steps"]) == (8, "lin_7e-4", 64)
    assert configs["PickupKnown", "ppo", "rims"]["core_kwargs"] == {"input_heads": 4}


def test_an_algorithm_may_have_steps_of_its_own(plan_of):
    plan = plan_of(algos={"ppo": {}, "a2c": {"n_timesteps": 3000}})
    assert {(job.algo, job.steps) for job in plan.jobs} == {("ppo", 1000), ("a2c", 3000)}
    assert plan.steps == "1,000 (ppo) or 3,000 (a2c)" and plan_of().steps == "1,000"


def test_the_hash_covers_what_changes_the_outcome_and_nothing_else(plan_of):
    def first(**changes):
        return plan_of(**changes).jobs[0].hash

    same = [
        first(title="another", seeds=[0, 5], checkpoint_freq=7),
        first(envs=["CartPole-v1"], algos={"ppo": {"n_steps": 64}}, cores={"by-another-name": {"core": "rims"}}),
        first(overrides={"gamma": 0.98}, steps=1e3),  # what the zoo says already
        first(env_options={"backend": None}),
    ]
    assert set(same) == {first()}
    exact = {"exact_resume": True}
    pickup = {
        "envs": ["PickupKnown"], "report": "variants", "evaluation": {"episodes": 10, "variants": ["known"]}
    }  # fmt: skip
    others = [
        first(envs=["Acrobot-v1"]),
        first(envs=["PickupKnown"]),
        first(envs=["PickupKnown"], env_options={"observation": "rgb"}),
        first(algos={"a2c": {"n_steps": 64}}),
        first(cores={"lstm": {}}),
        first(cores={"rims": {"core_kwargs": {"comm_heads": 2}}}),
        first(seeds=[3]),
        first(steps=1001),
        first(overrides={"gamma": 0.97}),
        first(evaluation={"episodes": 11}),
        first(**pickup),
        first(**pickup, curve={"points": 2, "episodes": 3, "variants": ["known"]}),
        first(**pickup | {"evaluation": {"episodes": 10, "variants": ["known", "more"]}}),
        first(**exact),
        first(**exact, checkpoint_freq=7),
    ]
    assert len({first(), *others}) == 1 + len(others)
    assert first(envs=["PickupKnown"]) == first(envs=["RimsRL/Pickup-Known-v0"])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seed": [1]}, "mine.yml: there is no key 'seed'; did you mean seeds?"),
        ({"steps": None}, "mine.yml: the key steps is missing"),
        ({"steps": "many"}, "mine.yml: steps must be a valid integer, got 'many'"),
        ({"seeds": []}, "mine.yml: seeds must be a list of at least 1 item, got []"),
        ({"seeds": [0, -1]}, "mine.yml: seeds.1 must be greater than or equal to 0, got -1"),
        ({"evaluation": {"episode": 3}}, "mine.yml: there is no key 'evaluation.episode'; did you mean episodes?"),
        ({"evaluation": {}}, "mine.yml: the key evaluation.episodes is missing"),
        (
            {"evaluation": {"episodes": 3, "variant": ["known"]}},
            "mine.yml: there is no key 'evaluation.variant'; did you mean variants?",
        ),
        (
            {"envs": ["PickupKnown"], "report": "variants", "evaluation": {"episodes": 3, "variants": ["novel-color"]}},
            "mine.yml: PickupKnown has no variant 'novel-color'; did you mean novel-colour",
        ),
        ({"report": "variants"}, "mine.yml: report: variants does not fit the evaluation; name evaluation.variants"),
        (
            {"curve": {"points": 1, "episodes": 1, "variants": ["known"]}},
            "mine.yml: curve.variants: known must be one of evaluation.variants too",
        ),
        (
            {"report": "atary"},
            "mine.yml: report must be 'variants', 'atari', 'transfer', 'scores' or 'mechanisms', got 'atary'",
        ),
        ({"envs": ["PickupKnow"]}, "mine.yml: there is no environment called 'PickupKnow'; did you mean PickupKnown"),
        ({"algos": {"dqn": {}}}, "there is no algorithm called 'dqn'; give ppo or a2c"),
        ({"env_options": {"observations": "rgb"}}, "there is no option 'observations'; did you mean observation?"),
        ({"cores": {"rims": {"rimsize": 3}}}, "mine.yml: cores.rims: there is no key 'rimsize' (value 3); did you"),
        ({"cores": {"rims": {"a2c": {"gama": 3}}}}, "mine.yml: cores.rims.a2c: there is no key 'gama' (value 3); did"),
        ({"cores": {"rims": {"a2c": 3}}}, "mine.yml: cores.rims.a2c must be a mapping of hyperparameters, got 3"),
        ({"cores": {"a/b": {}}}, "mine.yml: cores.a/b must be letters, digits, dots and -, got 'a/b'"),
        ({"cores": {}}, "mine.yml: cores must be a mapping of at least 1 item, got {}"),
        ({"cores": {"rim": {}}}, "mine.yml: cores.rim: core must be one of 'rims', 'rims-robust'"),
        ({"cores": {"rims": {"a2c": {"core": "lsmt"}}}}, "got 'lsmt'; did you mean 'lstm'?"),
        ({"transfer": "Pong"}, "mine.yml: transfer must be a mapping of keys to values, got 'Pong'"),
        ({"algos": {"ppo": 3}}, "mine.yml: algos.ppo must be a mapping of keys to values, got 3"),
        ({"algos": {"ppo": {"gamma": 2}}}, "mine.yml: algos.ppo: gamma must be less than or equal to 1, got 2"),
        ({"overrides": {"n_timesteps": 2}}, "mine.yml: overrides: n_timesteps is for algos only; write steps at the"),
        ({"cores": {"rims": {"n_timesteps": 2}}}, "cores.rims: n_timesteps is for algos only; write"),
        ({"seeds": [1, 1]}, "are the same job; change one, or leave it out"),
        ({"cores": {"rims": {}, "copy": {"core": "rims"}}}, "are the same job; change one, or leave it out"),
    ],
)
def test_a_mistake_is_one_sentence_with_file_key_and_remedy(changes, sentence, plan_of):
    with pytest.raises(UserError) as error:
        plan_of(**changes)
    assert sentence in str(error.value)


def test_an_unknown_suite_and_an_unreadable_file_are_one_sentence(tmp_path):
    with pytest.raises(UserError, match=r"no suite called 'smoek'; did you mean smoke\?"):
        read_plan("smoek")
    with pytest.raises(
        UserError, match=r"no suite called 'xyz'; give a \.yml file, or one of atari_elements, .*, transfer_small$"
    ):
        read_plan("xyz")
    with pytest.raises(UserError, match="cannot be read"):
        read_plan(str(tmp_path / "none.yml"))


def test_a_part_of_a_suite_is_the_jobs_that_are_named_and_those_they_start_from():
    plan = read_plan("mechanisms")
    part = plan.only(["Recall_ppo_lstm", "adding_gru_1"])
    titles = [job.title for job in part.all_jobs]
    assert titles == ["Recall_ppo_lstm_0", "Recall_ppo_lstm_1", "adding_gru_1", "Recall_ppo_lstm_2"]
    assert {job.hash for job in part.all_jobs} < {job.hash for job in plan.all_jobs}
    assert plan.only([]) == plan
    transfer = read_plan("transfer_small")
    (last,) = transfer.only([transfer.jobs[-1].name]).jobs[-1:]
    assert last == transfer.jobs[-1] and last.sources
    assert {job.hash for job in transfer.only([last.name]).jobs} == {last.hash, *last.sources}
    with pytest.raises(
        UserError, match=r"`only`: no job of mechanisms has 'Recal_' in its name; names are like Re.*_ppo"
    ):
        plan.only(["Recall", "Recal_"])


def test_shipped_suites_are_what_they_say():
    plans = {name: read_plan(name) for name in shipped()}
    assert {name: len(plan.all_jobs) for name, plan in plans.items()} == {
        "smoke": 2 * 2,
        "novel_distractors": 6 * 2 * 5,
        "novel_distractors_cells": 4 * 5,
        "novel_distractors_tuning": 4 * 3 * 2,
        "atari_paper": 41 * 4 * 3,
        "atari_no_input_attention": 30 * 3 * 3,
        # of each seed: rims and lstm on sources and from scratch on targets, then with what each or all sources gave
        "transfer_atari": 3 * (2 * 3 + 2 * 12 + (3 + 3 + 1) * 12),
        "transfer_small": 2 * (2 + 2 * 2 + 3 * 2),
        "atari_pilot": 10,
        "atari_small": 5 * 5 * 2,
        "atari_elements": 2 * 4,
        "memory": 5 * 8 * 2,
        "mechanisms_pilot": 3 * 26,
        "mechanisms_tuning": 2 * 9 * 3,
        "mechanisms": 5 * 12 * 3,
        "replay_active": 2 * 4 * 3,
    }
    assert plans["atari_paper"].suite.envs == list(paper_scores())
    assert set(plans["atari_no_input_attention"].suite.envs) < set(paper_scores())


def parameters(job):
    settings = settings_of(job).model_copy(update={"n_envs": 1, "n_steps": 128, "batch_size": 128})
    arguments = arguments_of(job, 1).model_copy(update={"eval_episodes": 1})
    model, _ = build(arguments, settings, resolve_arguments(arguments))
    return sum(model.policy.parameter_counts().values())


@pytest.mark.parametrize("suite", ["novel_distractors", "novel_distractors_cells"])
def test_policies_that_are_compared_for_novel_distractors_have_nearly_equal_parameter_counts(suite):
    plan = read_plan(suite)
    for algo in plan.suite.algos:
        counts = [parameters(job) for job in plan.jobs if (job.algo, job.seed) == (algo, 0)]
        assert len(counts) == len(plan.suite.cores) and max(counts) < 1.02 * min(counts)


def test_mechanisms_that_are_compared_have_nearly_equal_parameter_counts():
    plan = read_plan("mechanisms")
    counts = {env: [parameters(job) for job in plan.jobs if (job.env, job.seed) == (env, 0)] for env in plan.suite.envs}
    for job in plan.supervised[: len(plan.supervised) // 3]:
        network = job.task(job.config, None).network()
        counts.setdefault(job.task.name, []).append(sum(weight.numel() for weight in network.parameters()))
    assert len(counts) == 5
    for numbers in counts.values():
        assert len(numbers) == 12 and max(numbers) < 1.08 * min(numbers)
