"""The jobs of an imitation: one expert, one or several cores, several seeds.

::

    <results>/<Env>/expert.json        what the expert does in the tests, and random actions; its learning curve
    <results>/<Env>/<job>.json         what came out; a job whose hash is here is finished
    <logdir>/imitation/<Env>/<job>/    checkpoint.pt while it trains, then network.safetensors
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from pydantic import Field
from rich.progress import Progress

from rims_rl.common.errors import UserError
from rims_rl.common.options import Count, Options
from rims_rl.config.layers import Layer, shipped_sections, validate
from rims_rl.envs.names import Resolved
from rims_rl.envs.pictures import Pictured, is_drawn_by_mujoco
from rims_rl.evaluation.trained_runs import read_trained_run
from rims_rl.imitation.aggregation import remember_teacher
from rims_rl.imitation.expert import MINARI, Expert, ExpertActor, load_expert
from rims_rl.imitation.frames_picture import draw_frames
from rims_rl.imitation.job import ImitationJob
from rims_rl.imitation.playing import Actor, Played, Report, play
from rims_rl.imitation.records import ExpertRecord
from rims_rl.imitation.task import TEST_SEED, Imitation, ImitationConfig, variants
from rims_rl.imitation.trajectories import COPIES, made_once, read_trajectories, watch_expert
from rims_rl.jobs.experiment import Experiment
from rims_rl.runs.provenance import provenance
from rims_rl.runs.records import read_record, write_record

FILE, PAPER = "imitation.yml", "imitation_paper.yml"
EXAMPLES = "hidden_size=300 or core_kwargs.input_attention=false"
CURVE_POINTS = 60
REFERENCE = 4  # times as many episodes of the expert and of random actions as of a network, which take next to no time


class ImitateOptions(Options):
    expert: str  # folder of a run, .safetensors, .zip, or minari:<dataset>
    env: str | None = None  # of an expert that does not say it
    cores: Sequence[str] = ()  # none: the one of the settings
    settings: dict[str, Any] = Field(default_factory=dict)  # over those of the zoo; dots for keys of mappings
    paper: bool = False  # the settings of the paper's table, gru and rims-robust, instead of cores
    seeds: Count = 1  # how many
    data_dir: Path | None = None  # where trajectories are kept; None: in the user's cache
    trust: bool = False  # load files that can run code
    progress: bool = False  # show bars


def plan_imitation(options: ImitateOptions, results: Path, logdir: Path) -> Experiment:
    """Every core with seed 0, then every one with seed 1, and so on. Makes the trajectories if they are not there."""
    if options.paper and options.cores:
        raise UserError(f"`paper` has cores of its own, got `core` {options.cores[0]} too; leave out one of them")
    expert = load_expert(options.expert, options.env, options.trust)
    configs = load_configs(expert, options)
    for config in configs:
        variants(config)  # what cannot be played is to be known before the expert plays
        if config.dagger_every and expert.policy is None:
            raise UserError(f"dagger_every asks the expert, and {options.expert} is a dataset, which cannot answer")
    folder = results / expert.env.name
    _check_same_expert(expert, folder / "expert.json")
    for config in configs:
        _make_trajectories(expert, config, options)
        Imitation(config, options.data_dir).network()
    _write_reference(expert, configs[0], folder / "expert.json", options)
    jobs = [
        ImitationJob(Imitation, config, seed, data_dir=options.data_dir)
        for seed in range(options.seeds)
        for config in configs
    ]
    title = f"{Imitation.title}: {expert.env.name}"
    return Experiment(expert.env.name, title, jobs, folder, logdir / "imitation" / expert.env.name)


def load_configs(expert: Expert, options: ImitateOptions) -> list[ImitationConfig]:
    """One for each core, or for each row of the paper's table."""
    shipped = shipped_sections(FILE)
    sections = ["default"]
    sections += ["mujoco"] if is_drawn_by_mujoco(expert.env) else []
    sections += ["expert that answers"] if expert.policy is not None else []
    identity = {"name": expert.name, "fingerprint": expert.fingerprint}
    whose = {"env": expert.env_name, "env_options": expert.env.options, "expert": identity}
    layers: list[Layer] = [*((f"{FILE}: {name}", shipped[name]) for name in sections), ("the expert", whose)]
    chosen: list[dict[str, Any]] = [{"core": core} for core in options.cores] or [{}]
    if options.paper:
        chosen = [row["settings"] for row in shipped_sections(PAPER)["rows"]]
    for key in whose:
        if key in options.settings:
            raise UserError(f"{key} is the expert's own, got {options.settings[key]!r}; leave it out")
    given = [("`settings`", options.settings)] if options.settings else []
    return [validate(ImitationConfig, [*layers, ("`core`", core), *given])[0] for core in chosen]


def _check_same_expert(expert: Expert, path: Path) -> None:
    """A UserError if a folder has results of somebody else: they cannot stand in one table."""
    if path.exists() and (before := _read_reference(path).expert)["fingerprint"] != expert.fingerprint:
        raise UserError(
            f"{path.parent} has results of another expert, {before['name']}, got {expert.name}; choose another folder "
            "with `results`"
        )


def _read_reference(path: Path) -> ExpertRecord:
    return read_record(path, ExpertRecord, "remove it, and the same command writes it again")


def _make_trajectories(expert: Expert, config: ImitationConfig, options: ImitateOptions) -> None:
    folder = Imitation(config, options.data_dir).folder

    def make() -> tuple[Played, spaces.Space[Any]]:
        with _bar(f"watching {expert.name}", options.progress) as report:
            if expert.policy is None:
                from rims_rl.imitation.minari_data import replay_minari

                dataset = options.expert.removeprefix(MINARI)
                played = replay_minari(dataset, expert, config.episodes, config.side, report)
            else:
                played = watch_expert(expert, config.watching(), report)
        return played, expert.action_space

    made_once(folder, make)
    remember_teacher(folder, options.expert, options.trust)


def _write_reference(expert: Expert, config: ImitationConfig, path: Path, options: ImitateOptions) -> None:
    """What the expert and random actions score in the tests: what learners are compared with."""
    tests = variants(config)
    if path.exists() and set(tests) <= set(_read_reference(path).tests):
        return
    started, found = time.time(), dict[str, Any]()
    players = {"random": _random_player} | ({} if expert.policy is None else {"expert": _expert_player(expert)})
    episodes = REFERENCE * config.test_sequences
    for name, env in tests.items():
        with _bar(f"the expert, {name}", options.progress) as report:
            found[name] = {who: _score(env, make, episodes, report) for who, make in players.items()}
    watched, about = read_trajectories(Imitation(config, options.data_dir).folder)
    if expert.policy is not None:
        draw_frames(expert, tests, TEST_SEED, config.side, path.with_name("frames.png"))
    record = ExpertRecord(
        expert=config.expert | {"steps": expert.steps},
        env=config.env,
        env_options=config.env_options,
        trajectories={"seed": config.trajectory_seed, "steps": len(watched.starts), "scores": about.scores},
        tests=found,
        test_seed=TEST_SEED,
        curve=_learning_curve(Path(options.expert)),
        **provenance(started),
    )
    write_record(path, record)


Play = tuple[Actor, Callable[[Any], Any]]  # who plays, and what is put around the environments
MakePlayer = Callable[[Pictured], Play]


def _expert_player(expert: Expert) -> MakePlayer:
    return lambda pictured: (ExpertActor(expert, pictured.envs, TEST_SEED), expert.prepared)


def _random_player(pictured: Pictured) -> Play:
    space = pictured.envs.action_space
    space.seed(TEST_SEED)
    return lambda observations, pictures, starts: np.array([space.sample() for _ in starts]), lambda envs: envs


def _score(env: Resolved, make: MakePlayer, episodes: int, report: Report) -> list[float]:
    torch.set_num_threads(1)  # of small networks, more only wait for each other
    pictured = Pictured(env, min(COPIES, episodes), TEST_SEED, 0)
    try:
        actor, prepare = make(pictured)
        return play(pictured, actor, episodes, prepare, report=report).scores
    finally:
        pictured.close()


def _learning_curve(run: Path) -> list[list[float]]:
    """Of an expert that is one of our runs, or rl_zoo3's: mean returns, each of as many episodes."""
    try:
        episodes = read_trained_run(run).episodes
    except UserError:
        return []
    groups = np.array_split(np.arange(len(episodes)), min(CURVE_POINTS, len(episodes)))
    return [[float(episodes.ends[group[-1]]), float(episodes.scores[group].mean())] for group in groups]


@contextmanager
def _bar(what: str, shown: bool) -> Iterator[Report]:
    with Progress(transient=True, disable=not shown) as progress:
        bar = progress.add_task(what, total=None)

        def report(steps: int) -> None:
            progress.advance(bar, steps)
            done = progress.tasks[bar].completed
            progress.update(bar, description=f"{what}: {done:,.0f} steps")

        yield report
