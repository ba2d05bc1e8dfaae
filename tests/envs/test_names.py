"""Short names, full ids and typos."""

from pathlib import Path

import pytest

from rims_rl.common.errors import UserError
from rims_rl.envs.names import Resolved, atari_games, own_envs, resolve
from tests.helpers.verbs import user_error


def test_every_atari_game_has_a_short_name():
    games = atari_games()
    assert len(games) >= 100 and games["DemonAttack"] == "demon_attack"
    for short, rom in games.items():
        assert resolve(short) == Resolved(short, f"ALE/{short}-v5", rom, 0.0, "ale")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("PongNoFrameskip-v4", Resolved("Pong", "ALE/Pong-v5", "pong", 0.0, "ale")),
        ("ALE/Pong-v5", Resolved("Pong-v5", "ALE/Pong-v5", "pong", 0.25, "ale")),
        ("CartPole-v1", Resolved("CartPole-v1", "CartPole-v1", None, 0.0)),
        ("RimsRL/Pickup-More-v0", Resolved("PickupMore", "RimsRL/Pickup-More-v0", None, 0.0, observation="symbolic")),
        (
            "BabyAI-GoToLocal-v0",
            Resolved("BabyAI-GoToLocal-v0", "BabyAI-GoToLocal-v0", None, 0.0, observation="symbolic"),
        ),
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
        ("PickupKnwon", "did you mean PickupKnown"),
        ("MiniGrid-Empty-5x5", "MiniGrid-Empty-5x5-v0"),
        ("qqqqqq", "a Gymnasium id"),
    ],
)
def test_a_typo_gets_the_closest_names(typo, words):
    with pytest.raises(UserError, match=words):
        resolve(typo)


def test_options_of_atari_games_are_kept():
    env = resolve("Breakout", backend="sb3", game_mode=4, difficulty=1)
    assert env.options == {"backend": "sb3", "game_mode": 4, "difficulty": 1}


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("Breakout", {"backend": "sb4"}, "--backend must be ale or sb3, got 'sb4'"),
        ("Breakout", {"game_mode": 4}, "--game-mode 4 needs --backend sb3"),
        ("Breakout", {"difficulty": 1, "backend": "ale"}, "--difficulty 1 needs --backend sb3"),
        ("Breakout", {"game_mode": 3, "backend": "sb3"}, "--game-mode must be one of 0, 4, 8, .* in Breakout, got 3"),
        ("MsPacman", {"difficulty": 1, "backend": "sb3"}, "--difficulty must be one of 0 in MsPacman, got 1"),
        ("Backgammon", {"backend": "sb3"}, "Backgammon has no action NOOP"),
        ("CartPole-v1", {"backend": "sb3"}, "--backend sb3 is for Atari games, and CartPole-v1 is not one"),
        ("PickupKnown", {"backend": "sb3"}, "--backend sb3 is for Atari games"),
        ("PickupKnown", {"observation": "grey"}, "--observation must be symbolic or rgb, got 'grey'"),
        ("Pong", {"observation": "rgb"}, "--observation rgb is for MiniGrid and BabyAI, and ALE/Pong-v5 is neither"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(name, options, words):
    with user_error(words):
        resolve(name, **options)


def test_the_table_in_the_docs_has_every_atari_game():
    rows = [f"| `{name}` | `{rom}` |" for name, rom in sorted(atari_games().items())]
    text = (Path(__file__).parents[2] / "docs/reference/environments.md").read_text()
    assert [line for line in text.splitlines() if line in rows or line.startswith("| `A")] == rows


def test_our_own_environments_have_short_names():
    assert len(own_envs()) == 10 + 9
    for short, id_ in own_envs().items():
        observation = "symbolic" if short.startswith("Pickup") else None
        assert resolve(short) == resolve(id_) == Resolved(short, id_, None, 0.0, observation=observation)
    env = resolve("PickupKnown", observation="rgb")
    assert not env.deterministic and resolve("CartPole-v1").deterministic
