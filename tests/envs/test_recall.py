"""The recall task: what is shown when, what an answer gives, and which tokens a variant shows."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_of_sb3

import rims_rl.envs  # noqa: F401  registers them
from rims_rl.common.errors import UserError
from rims_rl.config.zoo import load
from rims_rl.envs.names import own_envs, resolve
from rims_rl.envs.recall.recall import Recall
from rims_rl.envs.registration import RECALLS
from rims_rl.envs.variants import CONTROLS, choose_variants, variants_of

IDS = {variant: f"RimsRL/Recall-{variant}-v0" if variant else "RimsRL/Recall-v0" for variant in RECALLS}
CUE, DISTRACTOR, QUESTION = range(3)


def make(variant="", **kwargs):
    return gym.make(IDS[variant], **kwargs).unwrapped


def episode(env, answer=None, **kwargs):
    """All observations of one, the last reward and info, and the cue. ``answer`` None is the right one."""
    observations, rewards, done, info = [env.reset(**kwargs)[0]], [], False, {}
    cue = int(observations[0][3:].argmax())
    while not done:
        assert info == {} and not any(rewards), "only the answer is rewarded"
        observation, reward, done, truncated, info = env.step(cue if answer is None else answer)
        assert not truncated
        observations.append(observation)
        rewards.append(reward)
    return np.array(observations[:-1]), rewards[-1], info, cue


def shown(variant, episodes):
    """Tokens of cues and of distractors, numbers of distractors, and how large their tokens are."""
    env, cues, tokens, delays, sizes = make(variant), set(), set(), set(), set()
    env.reset(seed=0)
    for _ in range(episodes):
        observations, _, _, cue = episode(env)
        distractors = observations[1:-1, 3:]
        cues.add(cue)
        tokens |= set(distractors.argmax(1).tolist())
        delays.add(len(distractors))
        sizes |= set(distractors.max(1).tolist())
    return cues, tokens, delays, sizes


@pytest.mark.parametrize("variant", RECALLS)
def test_gymnasium_and_stable_baselines3_accept_every_variant(variant):
    check_env(make(variant, render_mode="rgb_array"))
    check_env_of_sb3(make(variant))


def test_an_episode_is_a_cue_then_distractors_then_the_question():
    env = make()
    for seed in range(50):
        observations, _, _, _ = episode(env, seed=seed)
        kinds, tokens = observations[:, :3], observations[:, 3:]
        assert np.array_equal(kinds.sum(1), np.ones(len(kinds)))
        assert kinds.argmax(1).tolist() == [CUE, *[DISTRACTOR] * (len(kinds) - 2), QUESTION]
        assert tokens[:-1].sum(1).tolist() == [1.0] * (len(kinds) - 1) and not tokens[-1].any()


def test_only_the_answer_to_the_question_counts():
    env = make()
    observations, reward, info, cue = episode(env, seed=1)
    assert reward == 1.0 and info == {"outcome": "success", "is_success": True}
    again, reward, info, _ = episode(env, answer=(cue + 1) % 4, seed=1)
    assert reward == 0.0 and info == {"outcome": "wrong answer", "is_success": False}
    assert np.array_equal(observations, again), "what is done before changes nothing"


def test_distractors_are_drawn_for_each_step_and_tell_nothing_of_the_cue():
    env, repeated, like_the_cue, total = make(), 0, 0, 0
    env.reset(seed=0)
    for _ in range(400):
        observations, _, _, cue = episode(env)
        tokens = observations[1:-1, 3:].argmax(1)
        repeated += (tokens[1:] == tokens[:-1]).sum()
        like_the_cue += (tokens == cue).sum()
        total += len(tokens)
    assert repeated / total == pytest.approx(1 / 12, abs=0.02)
    assert like_the_cue / total == pytest.approx(1 / 12, abs=0.02)


def test_novel_tokens_are_in_no_other_variant_and_controls_have_known_ones_that_are_no_cue():
    everything = {variant: shown(variant, 60) for variant in RECALLS if "Long" not in variant}
    assert all(cues == {0, 1, 2, 3} and delays == set(range(5, 21)) for cues, _, delays, _ in everything.values())
    tokens = {variant: each[1] for variant, each in everything.items()}
    assert tokens[""] == tokens["Loud"] == set(range(12))
    assert tokens["Novel"] == tokens["NovelLoud"] == set(range(12, 20))
    assert tokens["Control"] == tokens["ControlLoud"] == set(range(4, 12))
    for variant, (_, _, _, sizes) in everything.items():
        assert sizes == ({3.0} if "Loud" in variant else {1.0})


@pytest.mark.parametrize("delay", [50, 100, 400])
def test_long_variants_have_so_many_known_distractors(delay):
    _, tokens, delays, sizes = shown(f"Long{delay}", 5)
    assert delays == {delay} and tokens <= set(range(12)) and sizes == {1.0}


def test_the_same_seed_gives_the_same_episodes():
    first, second = (episode(make(), seed=7)[0] for _ in range(2))
    assert np.array_equal(first, second)
    assert len({episode(make(), seed=seed)[0].tobytes() for seed in range(10)}) == 10


def test_a_picture_has_a_column_for_each_step_so_far():
    env = make("Loud", render_mode="rgb_array")
    env.reset(seed=0)
    for _ in range(3):
        env.step(0)
    picture = env.render()[::8, ::8, 0]
    assert picture.shape == (23, 32) and (picture[:, 4:] == 255).all()
    assert (picture[:, :4] < 255).sum(0).tolist() == [2, 2, 2, 2], "a kind and a token"
    assert make().render() is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"distractors": []}, r"distractors must be tokens from 0 to 19, got \[\]"),
        ({"distractors": [3, 20]}, r"distractors must be tokens from 0 to 19, got \[3, 20\]"),
        ({"delay": (5, 4)}, r"delay must be the least and the largest number of distractors, got \(5, 4\)"),
        ({"delay": (-1, 4)}, r"delay must be .*, got \(-1, 4\)"),
        ({"loudness": 0}, "loudness must be above 0 and at most 10, got 0"),
        ({"loudness": 11.0}, "loudness must be above 0 and at most 10, got 11.0"),
    ],
)
def test_what_cannot_be_is_one_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        Recall(**{"distractors": [0], **options})


def test_names_variants_and_controls():
    recalls = {short: id_ for short, id_ in own_envs().items() if short.startswith("Recall")}
    assert recalls == {f"Recall{variant}": id_ for variant, id_ in IDS.items()}
    env = resolve("Recall")
    assert env == resolve("RimsRL/Recall-v0") and env.family == "recall" and env.deterministic
    assert list(variants_of(env)) == [
        "known", "long50", "long100", "long400", "novel", "loud", "novel-loud", "control", "control-loud"
    ]  # fmt: skip
    assert variants_of(env)["known"] == env and variants_of(resolve("RecallLong50")) == variants_of(env)
    assert {CONTROLS[name] for name in variants_of(env) if name in CONTROLS} == {"control", "control-loud"}
    with pytest.raises(UserError, match="Recall has no variant 'lond50'; did you mean long50"):
        choose_variants(env, ["lond50"])
    assert load(resolve("RecallLoud"), "ppo").sources["n_envs"] == "ppo.yml: recall"


def test_gym_finds_it_by_module_without_torch():
    code = (
        "import sys, gymnasium as gym; env = gym.make('rims_rl.envs:RimsRL/Recall-v0'); env.reset(seed=0); "
        "assert 'torch' not in sys.modules and env.spec.to_json()"
    )
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
