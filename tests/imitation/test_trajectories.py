"""Windows of what was seen, and how a network sees them."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rims_rl.common.errors import UserError
from rims_rl.core import make_core
from rims_rl.imitation.expert import NoisyActor
from rims_rl.imitation.network import Actions, ImitationNetwork, Learner, PictureEncoder
from rims_rl.imitation.playing import Watched
from rims_rl.imitation.trajectories import Trajectories

SIDE = 46


def watched(lengths, seed=0):
    """Episodes of these lengths, with other pictures at every step."""
    random, steps = np.random.default_rng(seed), sum(lengths)
    pictures = random.integers(0, 256, (steps, SIDE, SIDE, 3), dtype=np.uint8)
    starts = np.zeros(steps, bool)
    starts[np.cumsum([0, *lengths[:-1]])] = True
    return Watched(pictures, random.uniform(-1, 1, (steps, 2)).astype(np.float32), starts)


def test_a_window_has_earlier_pictures_of_the_same_episode_beside_each():
    seen = watched([5, 3, 6])
    pictures, actions, starts = Trajectories([seen]).windows(20, 7, 4, np.random.default_rng(1))
    assert pictures.shape == (7, 20, 12, SIDE, SIDE) and actions.shape == (7, 20, 2) and starts.shape == (7, 20)
    for window in range(20):
        (begin,) = np.flatnonzero((seen.actions == actions[0, window]).all(1))
        for t in range(7):
            step = begin + t
            first = max(start for start in (0, 5, 8) if start <= step)
            expected = [seen.pictures[max(step - back, first)].transpose(2, 0, 1) for back in (3, 2, 1, 0)]
            np.testing.assert_array_equal(pictures[t, window], np.concatenate(expected))
            np.testing.assert_array_equal(actions[t, window], seen.actions[step])
            assert starts[t, window] == (step in (0, 5, 8))


def test_windows_come_from_all_that_was_added_and_never_from_two_of_them_at_once():
    first, second = watched([6], 1), watched([9], 2)
    both = Trajectories([first])
    both.add(second)
    assert both.steps == 15
    _, actions, _ = both.windows(200, 4, 1, np.random.default_rng(0))
    whose = (actions[:, :, None] == first.actions).all(-1).any(-1)
    assert (whose.all(0) | ~whose.any(0)).all() and 40 < whose[0].sum() < 100  # 3 of 9 places


def test_a_window_longer_than_all_that_was_seen_is_said():
    with pytest.raises(UserError, match=r"length must be at most 5, .* got 6"):
        Trajectories([watched([3, 2])]).windows(1, 6, 1, np.random.default_rng(0))


@pytest.mark.parametrize("core", ["rims", "rims-robust", "lstm", "gru"])
def test_a_network_at_play_does_step_by_step_what_training_does_at_once(core):
    torch.manual_seed(0)
    seen = watched([4, 5])
    encoder = PictureEncoder(12, SIDE)
    network = ImitationNetwork(
        encoder, make_core(core, encoder.size, 24, 6, 3, 1), Actions(spaces.Box(-1, 1, (2,)))
    ).eval()
    pictures, _, starts = Trajectories([seen]).windows(1, 9, 4, np.random.default_rng(0))
    with torch.no_grad():
        at_once, _ = network(torch.from_numpy(pictures), torch.from_numpy(starts.astype(np.float32)))
        learner = Learner(network, 4, True)
        played = [learner(None, seen.pictures[None, t], seen.starts[None, t]) for t in range(9)]
    np.testing.assert_allclose(np.concatenate(played), at_once[:, 0].clamp(-1, 1), atol=1e-5)


def test_the_encoder_is_that_of_world_models():
    encoder = PictureEncoder(12, 64)
    assert encoder.size == 1024 and encoder(torch.zeros(2, 12, 64, 64, dtype=torch.uint8)).shape == (2, 1024)
    weights = [(c.in_channels, c.out_channels, c.kernel_size, c.stride) for c in encoder if hasattr(c, "stride")]
    assert weights == [(i, o, (4, 4), (2, 2)) for i, o in ((12, 32), (32, 64), (64, 128), (128, 256))]


def test_actions_of_a_box_are_scaled_to_one_and_back_and_kept_inside():
    actions = Actions(spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32)))
    done = np.array([[-2.0, 1.0], [1.0, 0.25], [3.0, 0.5]], np.float32)
    targets = actions.targets(done)
    np.testing.assert_allclose(targets, [[-1, 1], [0.5, -0.5], [1, 0]])
    np.testing.assert_allclose(actions.chosen(targets, True), np.clip(done, [-2, 0], [2, 1]))
    np.testing.assert_allclose(actions.chosen(torch.tensor([[9.0, -9.0]]), True), [[2, 0]])
    assert actions.loss(targets + 0.5, targets).item() == pytest.approx(0.25)


def test_actions_without_limits_stay_as_they_are():
    actions, done = Actions(spaces.Box(-np.inf, np.inf, (2,))), np.array([[-70.0, 3.0]], np.float32)
    np.testing.assert_array_equal(actions.chosen(actions.targets(done), True), done)


def test_numbers_are_chosen_by_logits_and_count_from_where_the_space_does():
    actions = Actions(spaces.Discrete(3, start=5))
    np.testing.assert_array_equal(actions.targets(np.array([5, 7])), [0, 2])
    logits = torch.tensor([[0.0, 9.0, 1.0]])
    assert actions.chosen(logits, True).tolist() == [6]
    torch.manual_seed(0)
    drawn = actions.chosen(torch.zeros(300, 3), False)
    assert set(drawn.tolist()) == {5, 6, 7}
    expected = -torch.log_softmax(logits, -1)[0, 2]
    assert actions.loss(logits[None], torch.tensor([[2]])).item() == pytest.approx(expected.item())


def test_an_unsteady_hand_does_something_else_than_it_meant():
    space = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))
    meant = np.tile(np.array([[1.0, 0.5]], np.float32), (4000, 1))
    done = NoisyActor(lambda *_: meant, space, 0.1, seed=0)(None, None, None)
    assert done.dtype == np.float32 and (meant == [1.0, 0.5]).all()
    np.testing.assert_allclose((done - meant).std(0), [0.2, 0.05], rtol=0.05)  # a tenth of half the range
    wild = NoisyActor(lambda *_: meant, space, 0.9, seed=0)(None, None, None)
    assert (wild >= space.low).all() and (wild <= space.high).all()
    numbers = NoisyActor(lambda *_: np.full(4000, 7), spaces.Discrete(4, start=5), 0.4, seed=0)(None, None, None)
    assert set(numbers.tolist()) == {5, 6, 7, 8} and (numbers != 7).mean() == pytest.approx(0.4 * 3 / 4, abs=0.03)
