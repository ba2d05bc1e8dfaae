"""Distractors over Atari games: known and novel sets have nothing in common, and move with the game's own stack."""

from itertools import pairwise

import numpy as np
import pytest

from rims_rl.envs.atari.sprites import DISTRACTORS, NOISE_LEVEL, PATCH_LEVEL, SPEEDS, SPRITE_LEVEL, SPRITES, Overlay
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import resolve
from tests.helpers.verbs import user_error

CODES = {np.packbits(shape).tobytes(): name for sets in SPRITES.values() for name, shape in sets.items()}


def stacks(which, games, seed=0, age=0):
    """Distractors of so many games over blank frames: (games, 4, 84, 84), and the light that was added."""
    overlay = Overlay(which, games)
    for i in range(games):
        overlay.begin(i, np.random.default_rng((seed, i)))
    overlay.age += age
    drawn = overlay.draw(np.zeros((games, 4, 84, 84), np.uint8))
    light = drawn.min((1, 2, 3), keepdims=True)
    return drawn - light, light.ravel()


def sprites(frame):
    """Name and corner of each sprite that lies free."""
    lit = np.pad(frame == SPRITE_LEVEL, ((0, 7), (0, 7)), mode="wrap")
    windows = np.lib.stride_tricks.sliding_window_view(lit, (8, 8)).reshape(84, 84, 64)
    codes = np.packbits(windows, axis=-1).view(np.uint64)[..., 0]
    known = np.isin(codes, np.frombuffer(b"".join(CODES), np.uint64))
    return {CODES[codes[at].tobytes()]: at for at in zip(*np.nonzero(known), strict=True)}


@pytest.fixture(scope="module")
def frames():
    """Newest frames of a thousand games of each set."""
    drawn = {which: stacks(which, 1000, age=5) for which in DISTRACTORS}
    return {which: (stack[:, -1].copy(), light) for which, (stack, light) in drawn.items()}


def test_known_and_novel_sprites_share_no_shape(frames):
    seen = {
        which: {name for frame in frames[which][0] for name in sprites(frame)} for which in ("known", "novel-sprites")
    }
    assert seen == {"known": {"disc", "square", "plus"}, "novel-sprites": {"ring", "cross", "triangle"}}


def test_known_and_novel_patches_share_neither_pattern_nor_place(frames):
    def seen(which):
        patches = set()
        for frame in frames[which][0]:
            cells = frame.reshape(7, 12, 7, 12).swapaxes(1, 2)  # (7, 7, 12, 12)
            for row, column in zip(*np.nonzero((cells == PATCH_LEVEL).any((2, 3))), strict=True):
                cell = cells[row, column]
                if np.isin(cell, (0, PATCH_LEVEL)).all():  # nothing else covers it
                    patches.add(((row, column), cell.tobytes()))
        return patches

    known, novel = seen("known"), seen("novel-patches")
    assert {len({place for place, _ in each}) for each in (known, novel)} == {25, 24}
    assert {len({pattern for _, pattern in each}) for each in (known, novel)} == {2}
    for part in range(2):
        assert not {each[part] for each in known} & {each[part] for each in novel}


def test_known_noise_is_single_pixels_and_novel_noise_is_dashes(frames):
    def neighbours(which):
        """How many lit pixels there are, and the share of them with one beside it."""
        lit = frames[which][0] == NOISE_LEVEL
        beside = np.pad(lit, ((0, 0), (0, 0), (1, 1)))
        return lit.sum(), (lit & (beside[..., 2:] | beside[..., :-2])).sum() / lit.sum()

    (known, alone), (novel, together) = neighbours("known"), neighbours("novel-noise")
    assert alone == 0 and together > 0.99  # a sprite may cover all but one pixel of a dash
    assert abs(known / novel - 1) < 0.02, "there is as much of either"


def test_known_and_novel_light_share_no_level(frames):
    assert set(frames["known"][1]) == {0, 12, 24} and set(frames["novel-brightness"][1]) == {48, 60, 72}


@pytest.mark.parametrize("kind", ["sprites", "patches", "noise", "brightness"])
def test_only_what_the_name_says_is_novel(kind):
    overlay = Overlay(f"novel-{kind}", 1)
    assert (
        overlay.sets == {each: "novel" if each == kind else "known" for each in overlay.sets} and len(overlay.sets) == 4
    )
    assert set(Overlay("known", 1).sets.values()) == {"known"}


def test_sprites_move_by_their_speed_from_frame_to_frame():
    moved = 0
    for stack in stacks("known", 100, age=30)[0]:
        places = [sprites(frame) for frame in stack]
        for name in set.intersection(*map(set, places)):
            steps = {_way(before[name], after[name]) for before, after in pairwise(places)}
            if len(steps) == 1:  # of two alike, the one that is found may change
                moved += 1
                assert set(*steps) <= set(SPEEDS)
    assert moved > 50


def _way(before, after):
    """Rows and columns from one place to another, the short way round."""
    return tuple((b - a + 42) % 84 - 42 for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("backend", ["ale", "sb3"])
def test_the_stack_shifts_with_the_game_and_distractors_last_as_long_as_it(backend):
    """Beside the same games without distractors."""
    clean, dirty = (
        make_envs(resolve("Breakout", backend=backend, distractors=which), 3, 7, 1) for which in (None, "known")
    )
    before, drawn = clean.reset(), dirty.reset()
    overlay, actions = dirty.overlay, np.random.default_rng(0)
    ends = lives = 0
    for _ in range(300):
        chosen = actions.integers(4, size=3)
        last, previous, light = before, drawn, overlay._light.copy()
        before, rewards, dones, infos = clean.step(chosen)
        drawn, same_rewards, same_dones, drawn_infos = dirty.step(chosen)
        assert np.array_equal(rewards, same_rewards)
        assert np.array_equal(dones, same_dones)
        for i in range(3):
            clean_stack, stack = before[i], drawn[i]
            if dones[i]:
                over = "episode" in infos[i]
                ends, lives = ends + over, lives + (not over)
                clean_stack, stack = infos[i]["terminal_observation"], drawn_infos[i]["terminal_observation"]
                assert (overlay.age[i] == 0) == over
                if backend == "ale" and not over:
                    assert np.array_equal(stack, drawn[i])
            assert np.array_equal(clean_stack[:-1], last[i, 1:])
            assert np.array_equal(stack[:-1], previous[i, 1:])
            brighter = np.minimum(clean_stack, 255 - light[i]) + light[i]
            assert 0.01 < (stack != brighter).mean() < 0.06  # sprites, patches and noise
    assert ends >= 2 and lives >= 5


def test_distractors_follow_from_the_seed_and_not_from_the_actions():
    def play(seed, action, steps=40):
        envs = make_envs(resolve("Breakout", distractors="novel-noise"), 2, seed, 1)
        envs.seed(seed)
        observations = [envs.reset()]
        observations += [envs.step(np.full(2, action))[0] for _ in range(steps)]
        blank = np.zeros((2, 4, 84, 84), np.uint8)
        return np.stack(observations), envs.overlay.draw(blank), envs

    first, over_blank, envs = play(1, 0)
    again, _, _ = play(1, 0)
    np.testing.assert_array_equal(first, again)
    other_actions, over_blank_too, _ = play(1, 3)
    assert (other_actions[-1] != first[-1]).any()
    np.testing.assert_array_equal(over_blank, over_blank_too)
    assert (play(2, 0)[1] != over_blank).any() and (over_blank[0] != over_blank[1]).any()
    envs.seed(1)  # as a checkpoint of an exact run does
    np.testing.assert_array_equal(envs.reset(), first[0])
    assert (envs.reset() != first[0]).any(), "the next games have others"


def test_names_that_do_not_fit_are_one_sentence():
    with user_error(r"--distractors must be one of known, novel-sprites, .*, got 'new'"):
        resolve("Pong", distractors="new")
    with user_error("--distractors known is for Atari games, and CartPole-v1 is not one"):
        resolve("CartPole-v1", distractors="known")
    with user_error("--difficulty 1 needs --backend sb3"):
        resolve("Pong", distractors="known", difficulty=1)
