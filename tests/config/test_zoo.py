"""The zoo: layers, where values come from, mistakes, and the paper's table."""

import pickle
import re
import sys
from importlib import resources

import pytest
import yaml
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule
from torch import nn

from rims_rl import cli
from rims_rl.agents import RecurrentA2C, RecurrentPPO
from rims_rl.cli.app import with_flags
from rims_rl.common.errors import UserError
from rims_rl.config.training_config import ALGORITHMS
from rims_rl.config.zoo import SHARED_SECTIONS, load, paper_scores
from rims_rl.envs.names import atari_games

SECTIONS = [
    (algo, section)
    for algo in ALGORITHMS
    for section in yaml.safe_load((resources.files("rims_rl.zoo_configs") / f"{algo}.yml").read_text("utf-8"))
]


@pytest.fixture
def write(tmp_path):
    """Writes a user's file."""

    def write(text):
        path = tmp_path / "mine.yml"
        path.write_text(text)
        return path

    return write


def test_atari_has_the_paper_s_settings():
    config, _ = load("DemonAttack", "ppo")
    assert (config.n_envs, config.n_steps, config.batch_size, config.n_epochs) == (8, 128, 256, 4)
    assert (config.learning_rate, config.clip_range, config.clip_range_vf) == ("lin_2.5e-4", 0.1, 0.1)
    assert (config.ent_coef, config.vf_coef, config.gamma, config.gae_lambda) == (0.01, 0.5, 0.99, 0.95)
    assert (config.max_grad_norm, config.n_timesteps, config.policy) == (0.5, 40_000_000, "CnnRimsPolicy")
    assert (config.core, config.num_rims, config.rim_size, config.num_active) == ("rims-robust", 6, 100, 4)
    assert config.core_kwargs == {"input_heads": 1}


def test_each_layer_overrides_the_one_before(write):
    file = write("n_epochs: 3\ngamma: 0.5\n")
    config, sources = load("CartPole-v1", "ppo", file=file, overrides=["gamma=0.25"])
    assert (sources["vf_coef"], config.vf_coef) == ("ppo.yml: default", 0.5)
    assert (sources["gae_lambda"], config.gae_lambda) == ("ppo.yml: CartPole-v1", 0.98)
    assert (sources["n_epochs"], config.n_epochs) == (str(file), 3)  # the zoo's section has 20
    assert (with_flags(sources["gamma"]), config.gamma) == ("--set", 0.25)


def test_sections_of_a_file_apply_in_the_same_order(write):
    file = write(
        "Pong: {n_steps: 16}\natari: {n_steps: 32, n_epochs: 2}\ndefault: {n_steps: 64, gamma: 0.9}\n"
        "Breakout: {n_steps: 8}\n"
    )
    config, sources = load("Pong", "ppo", file=file)
    assert (config.n_steps, config.n_epochs, config.gamma) == (16, 2, 0.9)
    assert sources["n_steps"] == f"{file}: Pong"
    assert sources["n_epochs"] == f"{file}: atari"
    assert sources["gamma"] == f"{file}: default"
    assert load("CartPole-v1", "ppo", file=file).config.n_steps == 64  # atari is not for it


@pytest.mark.parametrize("name", ["Pong", "PongNoFrameskip-v4"])
def test_a_game_s_section_holds_for_all_its_spellings(name, write):
    assert load(name, "ppo", file=write("Pong: {n_steps: 16}\n")).sources["n_steps"].endswith(": Pong")


def test_every_value_has_a_source():
    for algo in ALGORITHMS:
        config, sources = load("CartPole-v1", algo)
        assert sources.keys() == type(config).model_fields.keys()


def test_mappings_are_merged_and_an_empty_one_clears(write):
    file = write("policy_kwargs: {net_arch: {pi: [32], vf: [32]}, ortho_init: false}\n")
    config, sources = load("Pong", "ppo", file=file, overrides=["policy_kwargs.net_arch.vf=[64]"])
    assert config.policy_kwargs == {"net_arch": {"pi": [32], "vf": [64]}, "ortho_init": False}
    assert sources["policy_kwargs.net_arch.pi"] == str(file)
    assert with_flags(sources["policy_kwargs.net_arch.vf"]) == "--set"
    assert load("Pong", "ppo", file=file, overrides=["policy_kwargs={}"]).config.policy_kwargs == {}
    replaced = load("Pong", "ppo", file=file, overrides=["policy_kwargs.net_arch=[8]"]).config
    assert replaced.policy_kwargs == {"net_arch": [8], "ortho_init": False}


def test_another_core_does_not_inherit_the_options_of_this_one(write):
    assert load("Pong", "ppo", overrides=["core_kwargs.comm_heads=2"]).config.core_kwargs == {
        "input_heads": 1,
        "comm_heads": 2,
    }
    assert load("Pong", "ppo", overrides=["core=lstm"]).config.core_kwargs == {}
    assert load("Pong", "ppo", overrides=["core_kwargs.x=1", "core=my.core"]).config.core_kwargs == {"x": 1}
    assert load("Pong", "ppo", overrides=["core=rims"]).config.core_kwargs == {"input_heads": 1}
    # other kinds of RIMs have the same options, but for those that their name stands for
    assert load("Pong", "ppo", overrides=["core=rims-robust"]).config.core_kwargs == {"input_heads": 1}
    file = write("core_kwargs: {comm_key_size: 8, comm_heads: 2}\n")
    released = load("Pong", "ppo", file=file, overrides=["core=rims-released"]).config
    assert released.core_kwargs == {"input_heads": 1, "comm_heads": 2}


@pytest.mark.parametrize(("text", "number"), [("1e6", 1_000_000), ("2_000", 2000), ("5", 5), ("1.5E+3", 1500)])
def test_whole_numbers_may_be_written_as_people_write_them(text, number, write):
    for loaded in (
        load("Pong", "ppo", overrides=[f"n_timesteps={text}"]),
        load("Pong", "ppo", file=write(f"n_timesteps: {text}\n")),
    ):
        assert loaded.config.n_timesteps == number and isinstance(loaded.config.n_timesteps, int)


def test_small_numbers_need_no_decimal_point():
    assert load("Pong", "ppo", overrides=["learning_rate=1e-4"]).config.learning_rate == 1e-4
    assert load("Pong", "ppo", overrides=["target_kl=.5e-1"]).config.target_kl == 0.05


def test_a_saved_config_gives_the_same_config(write):
    config, _ = load("Pong", "a2c", overrides=["core=gru", "n_envs=3", "policy_kwargs.ortho_init=false"])
    assert load("Pong", "a2c", file=write(yaml.safe_dump(config.model_dump()))).config == config


@pytest.mark.parametrize(("algo", "section"), SECTIONS)
def test_every_shipped_section_is_valid_and_is_used(algo, section):
    env = {
        "default": "MountainCar-v0",
        "atari": "Pong",
        "minigrid": "PickupKnown",
        "popgym": "AutoencodeEasy",
        "recall": "RecallLoud",
    }
    env = env.get(section, section)
    assert f"{algo}.yml: {section}" in load(env, algo).sources.values()


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_atari_game_has_a_config(algo):
    for game in atari_games():
        assert load(game, algo).config.policy == "CnnRimsPolicy"


@pytest.mark.parametrize(("algo", "algorithm"), [("ppo", RecurrentPPO), ("a2c", RecurrentA2C)])
def test_algorithms_take_what_the_config_gives(algo, algorithm):
    config, _ = load("Acrobot-v1", algo, overrides=["rim_size=2", "learning_rate=lin_1e-3", "core_kwargs.comm_heads=2"])
    env = make_vec_env("Acrobot-v1", config.n_envs)
    model = algorithm(config.policy, env, policy_kwargs=config.policy_arguments(), **config.algorithm_kwargs())
    for name in ("n_steps", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm", "normalize_advantage"):
        assert getattr(model, name) == getattr(config, name)
    assert model.lr_schedule(0.5) == pytest.approx(5e-4)
    assert model.policy.core.hidden_size == 12
    env.close()


def test_schedules_become_ones_that_can_be_saved():
    arguments = load("Pong", "ppo", overrides=["clip_range_vf=lin_0.2"]).config.algorithm_kwargs()
    assert isinstance(arguments["learning_rate"], LinearSchedule)
    schedule = pickle.loads(pickle.dumps(arguments["clip_range_vf"]))
    assert [schedule(remaining) for remaining in (1, 0.5, 0)] == pytest.approx([0.2, 0.1, 0])
    assert arguments["clip_range"] == 0.1
    assert not arguments.keys() & {"n_timesteps", "n_envs", "policy", "normalize", "core", "policy_kwargs"}


def test_policy_arguments_are_those_of_the_policy():
    overrides = ["policy_kwargs.activation_fn=torch.nn.ReLU", "policy_kwargs.input=spatial", "critic=separate"]
    assert load("Pong", "ppo", overrides=overrides).config.policy_arguments() == {
        "core": "rims-robust",
        "num_rims": 6,
        "num_active": 4,
        "rim_size": 100,
        "critic": "separate",
        "core_kwargs": {"input_heads": 1},
        "activation_fn": nn.ReLU,
        "input": "spatial",
    }


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("n_stpes=5", "--set: there is no key 'n_stpes' (value 5); did you mean n_steps?"),
        ("policy_kwargz.net_arch=[64]", "did you mean policy_kwargs?"),
        ("zzz=1", "the keys are n_timesteps, n_envs"),
        ("rms_prop_eps=1e-3", "only a2c has it"),
        ("n_steps=many", "--set: n_steps must be a valid integer, got 'many'"),
        ("n_steps=1.5", "n_steps must be a valid integer, got 1.5"),
        ("n_steps=true", "n_steps must be a valid integer, got True"),
        ("n_steps='64'", "n_steps must be a valid integer, got '64'"),
        ("n_steps=", "n_steps must be a valid integer, got None"),
        ("n_steps.x=1", "n_steps must be a valid integer, got {'x': 1}"),
        ("n_envs=0", "n_envs must be greater than or equal to 1, got 0"),
        ("n_timesteps=.inf", "n_timesteps must be a valid integer, got inf"),
        ("gamma=2", "gamma must be less than or equal to 1, got 2"),
        ("gamma=.nan", "gamma must be "),
        ("target_kl=x", "target_kl must be a valid number or null, got 'x'"),
        ("normalize=1", "normalize must be a valid boolean, got 1"),
        ("core=5", "core must be a valid string, got 5"),
        ("core=''", "core must be a word of at least 1 character, got ''"),
        ("critic=sharred", "critic must be 'shared', 'separate' or 'none', got 'sharred'"),
        ("policy=CnnPolicy", "policy must be 'MlpRimsPolicy', 'CnnRimsPolicy' or 'MultiInputRimsPolicy'"),
        ("core_kwargs=[1]", "core_kwargs must be a mapping of keys to values, got [1]"),
        ("learning_rate=lin_", "such as lin_2.5e-4, got 'lin_'"),
        ("learning_rate=fast", "such as lin_2.5e-4, got 'fast'"),
        ("learning_rate=-1", "learning_rate must be a positive number"),
        ("learning_rate=true", "learning_rate must be a positive number"),
        ("learning_rate=[1]", "learning_rate must be a positive number"),
        ("clip_range_vf=lin_-1", "clip_range_vf must be a positive number"),
        ("policy_kwargs.net_archh=[64]", "takes no policy_kwargs.net_archh (value [64]); did you mean net_arch?"),
        ("policy_kwargs.zzz=1", "it takes activation_fn, "),
        ("policy_kwargs.num_rims=3", "write num_rims instead of policy_kwargs.num_rims (value 3)"),
        ("policy_kwargs.activation_fn=ReLU", "dotted path, such as my_module.MyClass or torch.nn.ReLU, got 'ReLU'"),
        ("batch_size=300", "--set: batch_size must divide n_steps * n_envs = 128 * 8 = 1024, got 300; 256 would do"),
        ("n_steps=100", "ppo.yml: atari: batch_size must divide n_steps * n_envs = 100 * 8 = 800, got 256; 200 would"),
        ("sequence_length=100", "--set: sequence_length must divide n_steps = 128"),
        ("num_rims=3", "ppo.yml: default: num_active must be at most num_rims = 3 (--set), got 4"),
        ("n_steps", "--set 'n_steps' must be key=value"),
        ("=5", "--set '=5' must be key=value"),
        ("policy_kwargs.=5", "must be key=value"),
        ("policy_kwargs.net_arch=[64", "--set 'policy_kwargs.net_arch=[64' is not YAML"),
        ("core=2020-99-99", "--set 'core=2020-99-99' is not YAML"),
    ],
)
def test_a_mistake_in_set_is_one_sentence(override, words):
    assert words in sentence(lambda: load("Pong", "ppo", overrides=[override]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n_stpes: 5\n", "{file}: there is no key 'n_stpes' (value 5); did you mean n_steps?"),
        ("gamma: high\n", "{file}: gamma must be a valid number, got 'high'"),
        ("Pong:\n  gamma: high\n", "{file}: Pong: gamma must be a valid number, got 'high'"),
        (
            "polcy_kwargs: {net_arch: [64]}\n",
            "{file}: 'polcy_kwargs' is neither a key nor a section; did you mean policy",
        ),
        ("Pongg: {n_steps: 5}\n", "{file}: 'Pongg' is neither a key nor a section; there is no environment called"),
        ("Breakout: {n_steps: 5}\n", "{file} has no section for Pong, only Breakout"),
        ("n_steps: 5\nPong: {gamma: 0.5}\n", "{file}: there is no key 'Pong'"),
        ("1: 2\n", "{file}: there is no key '1' (value 2)"),
        ("gamma: 0.9\nn_steps: [5\n", "{file} is not YAML, line 3: "),
        ("gamma: !!python/name:os.system\n", "{file} is not YAML: could not determine a constructor"),
        ("- 1\n", "{file} must hold `key: value` lines, got [1]"),
        ("", "{file} must hold `key: value` lines, got None"),
        ("\0", "{file} is not YAML"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence(text, words, write):
    file = write(text)
    assert words.format(file=file) in sentence(lambda: load("Pong", "ppo", file=file))


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path):
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe\x00")
    for name, words in [("none.yml", "No such file"), ("", "Is a directory"), ("binary.yml", "not text")]:
        path = tmp_path / name
        assert f"{path} cannot be read" in (said := sentence(lambda path=path: load("Pong", "ppo", file=path)))
        assert words in said


def test_an_unknown_algorithm_is_one_sentence():
    said = sentence(lambda: load("Pong", "sac"))
    assert said == "--algo: there is no algorithm called 'sac'; give ppo or a2c"


def test_the_paper_s_table_has_41_games_that_exist():
    scores = paper_scores()
    assert len(scores) == 41 and scores.keys() <= atari_games().keys()
    assert all(row.keys() == {"rims", "rims_error", "lstm", "lstm_error"} for row in scores.values())
    assert scores["DemonAttack"] == {"rims": 230324.0, "rims_error": 4032.0, "lstm": 26320.0, "lstm_error": 3234.0}


def test_zoo_lists_all_sections(monkeypatch, capsys):
    code, out, _ = run(["zoo"], monkeypatch, capsys)
    rows = [re.split(r" *│ *", line)[1:3] for line in out.splitlines() if "RimsPolicy" in line]
    assert code == 0 and rows == [list(row) for row in SECTIONS]
    assert SHARED_SECTIONS == ("default", "atari", "minigrid", "popgym", "recall")
    assert "40,000,000" in out and "rims-robust, 4 of 6" in out


def test_zoo_show_prints_each_value_and_where_it_came_from(monkeypatch, capsys, write):
    file = write("gamma: 0.5\n")
    arguments = [
        "zoo",
        "show",
        "Pong",
        "--config",
        str(file),
        "--set",
        "policy_kwargs.net_arch=[64]",
        "--set",
        "n_envs=4",
    ]
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run(arguments, monkeypatch, capsys)
    rows = [re.split(r" *│ *", line)[1:4] for line in out.splitlines() if line.startswith("│")]
    assert code == 0 and {key for key, _, _ in rows} >= {"n_timesteps", "core", "batch_size"}
    assert ["learning_rate", "lin_2.5e-4", "ppo.yml: atari"] in rows
    assert ["target_kl", "null", "ppo.yml: default"] in rows
    assert ["gamma", "0.5", str(file)] in rows
    assert ["policy_kwargs.net_arch", "[64]", "--set"] in rows
    assert ["n_envs", "4", "--set"] in rows


def test_zoo_show_takes_the_algorithm(monkeypatch, capsys):
    _, out, _ = run(["zoo", "show", "CartPole-v1", "--algo", "a2c"], monkeypatch, capsys)
    assert "use_rms_prop" in out and "a2c.yml: CartPole-v1" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["zoo", "show", "Pongg"], "rims-rl: there is no environment called 'Pongg'; did you mean Pong"),
        (["zoo", "show", "Pong", "--algo", "dqn"], "rims-rl: --algo: there is no algorithm called 'dqn'"),
        (["zoo", "show", "Pong", "--set", "n_envs"], "rims-rl: --set 'n_envs' must be key=value"),
        (["zoo", "show", "Pong", "--config", "nowhere.yml"], "rims-rl: nowhere.yml cannot be read"),
    ],
)
def test_mistakes_on_the_command_line_exit_with_2(arguments, words, monkeypatch, capsys):
    code, _, error = run(arguments, monkeypatch, capsys)
    assert code == 2 and words in error and error.count("\n") == 1


def sentence(call):
    """What a UserError says, which must be one sentence."""
    with pytest.raises(UserError) as caught:
        call()
    said = with_flags(str(caught.value))
    assert "\n" not in said and not re.search(r"\.\s+[A-Z]", said) and not said.endswith(".")
    return said


def run(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rims-rl", *arguments])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    captured = capsys.readouterr()
    return exit_.value.code, captured.out, captured.err
