"""Small pictures of any environment."""

import gymnasium as gym
import numpy as np
import pytest

from rims_rl.common.errors import UserError
from rims_rl.envs.mujoco import mujoco_pictures
from rims_rl.envs.names import resolve
from rims_rl.envs.pictures import Pictured


@pytest.fixture
def pictured():
    made = []

    def make(name, n_envs=2, side=64):
        made.append(Pictured(resolve(name), n_envs, 0, side))
        made[-1].envs.reset()
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "CartPole-v1", "PickupKnown", "Breakout"])
def test_every_copy_has_a_picture_of_its_own(name, pictured):
    several = pictured(name)
    first = several.pictures()
    assert first.shape == (2, 64, 64, 3) and first.dtype == np.uint8 and first.std() > 1
    for _ in range(12):
        several.envs.step(np.array([several.envs.action_space.sample() for _ in range(2)]))
    assert (several.pictures() != first).any()


def test_bodies_in_the_same_state_look_the_same_and_others_do_not(pictured):
    several = pictured("HalfCheetah-v5")
    one, two = several.envs.get_attr("unwrapped")
    two.set_state(one.data.qpos.copy(), one.data.qvel.copy())
    np.testing.assert_array_equal(*several.pictures())
    angles = one.data.qpos.copy()
    angles[4] += 0.5
    two.set_state(angles, one.data.qvel.copy())
    before, after = several.pictures()
    assert (before != after).any(-1).sum() > 10  # a leg, and the camera follows the middle of the body


def test_without_any_way_to_draw_a_sentence_says_what_to_install(monkeypatch):
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(mujoco_pictures, "find_library", lambda name: None)
    with pytest.raises(UserError, match="neither a display, nor EGL, nor OSMesa; install one, such as the packages"):
        Pictured(resolve("HalfCheetah-v5"), 1, 0, 64)


def test_a_renderer_that_fails_is_named(monkeypatch):
    import mujoco

    def broken(*_):
        raise RuntimeError("no display found\nand more")

    monkeypatch.setattr(mujoco, "Renderer", broken)
    with pytest.raises(UserError, match=r"HalfCheetah-v5 cannot be drawn by .* \(no display found\); install EGL"):
        Pictured(resolve("HalfCheetah-v5"), 1, 0, 64)


def test_an_environment_without_pictures_is_named():
    name = "UnseenHere-v0"  # the module registers another one when it is imported
    gym.register(name, entry_point="tests.helpers.unseen_env:Unseen")
    try:
        unseen = Pictured(resolve(name), 1, 0, 64)
        with pytest.raises(UserError, match="UnseenHere-v0 cannot be imitated from pictures"):
            unseen.pictures()
    finally:
        del gym.registry[name]
