"""Short names, full ids and typos."""

import pytest

from rims_rl.envs.names import Resolved, atari_games, resolve
from rims_rl.errors import UserError


def test_every_atari_game_has_a_short_name():
    games = atari_games()
    assert len(games) >= 100 and games["DemonAttack"] == "demon_attack"
    for short, rom in games.items():
        assert resolve(short) == Resolved(short, f"ALE/{short}-v5", rom, 0.0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("PongNoFrameskip-v4", Resolved("Pong", "ALE/Pong-v5", "pong", 0.0)),
        ("ALE/Pong-v5", Resolved("Pong-v5", "ALE/Pong-v5", "pong", 0.25)),
        ("CartPole-v1", Resolved("CartPole-v1", "CartPole-v1", None, 0.0)),
    ],
)
def test_full_ids_keep_their_own_settings(name, expected):
    assert resolve(name) == expected


@pytest.mark.parametrize(
    ("typo", "words"),
    [
        ("DemonAtack", "did you mean DemonAttack"),
        ("demonattack", "DemonAttack"),
        ("CartPole", "CartPole-v"),
        ("qqqqqq", "a Gymnasium id"),
    ],
)
def test_a_typo_gets_the_closest_names(typo, words):
    with pytest.raises(UserError, match=words):
        resolve(typo)
