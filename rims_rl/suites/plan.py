"""A suite is a YAML file; its plan is one job for each environment, algorithm, core and seed, and for each supervised
task, core and seed.

A suite about transfer trains on sources first, and on each of its environments, the targets, from scratch and with what
each source has learned.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from itertools import chain, product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rims_rl.common.errors import UserError
from rims_rl.common.suggestions import did_you_mean
from rims_rl.config import zoo
from rims_rl.config.fields import Count
from rims_rl.config.layers import read_mapping, wanted
from rims_rl.config.training_config import ALGORITHMS
from rims_rl.core.registry import core_factory
from rims_rl.envs.names import OPTIONS, Resolved, resolve
from rims_rl.envs.variants import choose_variants
from rims_rl.jobs.experiment import Experiment
from rims_rl.jobs.job import Job
from rims_rl.suites.job import AgentJob
from rims_rl.supervised.job import SupervisedJob
from rims_rl.supervised.task import Task, TaskConfig, load
from rims_rl.supervised.task_names import find_task
from rims_rl.training.carry import parse_carry

EVALUATION_SEED = 10_000  # the same episodes for every policy, and not those that a small training seed began with


def _word(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9.-]+", text):
        raise ValueError("letters, digits, dots and -")
    return text


Word = Annotated[str, AfterValidator(_word)]  # part of a file's name
Values = dict[str, Any]  # hyperparameters, as in zoo_configs
Names = Annotated[list[str], Field(min_length=1)]
SUPERVISED = "supervised"  # where a core has settings that only hold in supervised tasks
PROGRESSIVE = "progressive"  # not a core: LSTMs in columns, see rims_rl.agents.policies.progressive


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Evaluation(_Model):
    """How each policy is played after training."""

    episodes: Count
    # none: the environment it was trained on; by environment, if only some of them have variants
    variants: Names | dict[str, Names] | None = None
    without_each_rim: bool = False  # those that have RIMs are also played without each of them

    def of(self, env: str) -> list[str] | None:
        """The variants in which policies of ``env`` are played, as the suite names it."""
        return self.variants.get(env) if isinstance(self.variants, dict) else self.variants


class Curve(_Model):
    """How policies that are kept on the way are played, to see how success grows."""

    points: Count  # at equal distances, besides the beginning
    episodes: Count
    variants: Names


class Transfer(_Model):
    """What is learned first, and what of it is carried over."""

    sources: Names
    carry: str = "encoder=finetune,core=finetune"  # not to progressive networks, which read all that the columns do


class Suite(_Model):
    """What the YAML file holds. Hyperparameters are layers over those of zoo_configs: ``overrides``, then those of the
    algorithm, then those of the core; a core's may hold more, by the name of an algorithm. Only an algorithm may have
    ``n_timesteps`` instead of ``steps``: cores are compared at equal steps.

    Supervised tasks have settings of their own, over which come ``core``, ``num_rims``, ``num_active`` and
    ``core_kwargs`` of the core, and what it has under ``supervised``: for all tasks, or by the name of a task.
    """

    title: str
    envs: Names
    env_options: Values = {}
    algos: Annotated[dict[str, Values], Field(min_length=1)]
    cores: Annotated[dict[Word, Values], Field(min_length=1)]
    seeds: Annotated[list[Annotated[int, Field(ge=0, le=2**30)]], Field(min_length=1)]
    supervised: dict[str, Values] = {}  # tasks
    solved: dict[str, float] = {}  # the score from which on a task or an environment counts as learned
    steps: Count
    overrides: Values = {}
    checkpoint_freq: Count = 100_000
    exact_resume: bool = False
    evaluation: Evaluation
    curve: Curve | None = None
    transfer: Transfer | None = None
    report: Literal["variants", "atari", "transfer", "scores", "mechanisms"]


class Cell(NamedTuple):
    """One seed of one comparison: training on a target with what was learned elsewhere, and from scratch."""

    core: str
    algo: str
    source: str
    target: str
    seed: int
    before: list[AgentJob]
    scratch: AgentJob
    transfer: AgentJob


class Plan(NamedTuple):
    name: str
    suite: Suite
    jobs: list[AgentJob]
    argument: str  # what ``rims-rl suite`` is given to find it
    supervised: list[SupervisedJob] = []  # noqa: RUF012  # never changed

    @property
    def all_jobs(self) -> list[Job]:
        """Whole seeds, and in each of them agents first."""
        every: list[Job] = [*self.jobs, *self.supervised]
        seeds = {seed: i for i, seed in enumerate(self.suite.seeds)}
        return sorted(every, key=lambda job: seeds[job.seed])  # type: ignore[attr-defined]

    def only(self, texts: Sequence[str]) -> Plan:
        """With those jobs alone whose name has one of these texts in it, and those that they start from."""
        for text in texts:
            if not any(text in job.name for job in self.all_jobs):
                raise UserError(
                    f"`only`: no job of {self.name} has {text!r} in its name; names are like {self.all_jobs[0].name}"
                )
        named = [job for job in self.all_jobs if not texts or any(text in job.name for text in texts)]
        chosen = {job.hash for job in named} | {source for job in named for source in job.sources}
        return self._replace(
            jobs=[job for job in self.jobs if job.hash in chosen],
            supervised=[job for job in self.supervised if job.hash in chosen],
        )

    @property
    def steps(self) -> str:
        """Of one job, in words."""
        steps = {job.algo: f"{job.steps:,}" for job in self.jobs}
        if len(set(steps.values())) == 1:
            return next(iter(steps.values()))
        return " or ".join(f"{each} ({algo})" for algo, each in steps.items())

    def experiment(self, results: Path, logdir: Path) -> Experiment:
        """Its jobs, with their folders in ``<logdir>/suites/<name>/``."""
        return Experiment(self.name, self.suite.title, self.all_jobs, results, logdir / "suites" / self.name)


def shipped() -> list[str]:
    """The names of the suites that come with rims-rl."""
    folder = resources.files("rims_rl.zoo_configs") / "suites"
    return sorted(path.name.removesuffix(".yml") for path in folder.iterdir() if path.name.endswith(".yml"))


def read_plan(suite: str) -> Plan:
    """The plan of a YAML file, or of a suite of ours by its name; a UserError names the file and the key."""
    file = Path(suite)
    if file.suffix not in (".yml", ".yaml"):
        if suite not in (names := shipped()):
            hint = did_you_mean(suite, names, f"give a .yml file, or one of {', '.join(names)}")
            raise UserError(f"there is no suite called {suite!r}; {hint}")
        file = Path(str(resources.files("rims_rl.zoo_configs") / "suites" / f"{suite}.yml"))
    return make_plan(file.stem, read_mapping(file), file.name, suite)


def make_plan(name: str, data: dict[str, Any], where: str, argument: str) -> Plan:
    """The plan of what a YAML file holds; ``where`` begins the messages, and ``argument`` finds the file again."""
    try:
        suite = Suite.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{where}: {_explain(error)}") from error
    return Plan(name, suite, _jobs(suite, where), argument, _supervised_jobs(suite, where))


def transfer_cells(suite: Suite, file: str) -> list[Cell]:
    """The comparisons of a suite about transfer. A progressive network has a column for every source; its columns, and
    what it is compared with, are networks of one column: those of the core ``lstm``, if the suite has it too."""
    assert suite.transfer is not None
    carry, cells = suite.transfer.carry, []
    alone = {"random": suite.evaluation.episodes}  # of random play in the same environment
    for seed, algo, core in product(suite.seeds, suite.algos, suite.cores):
        progressive = _core_of(suite, core) == PROGRESSIVE
        before = {source: _job(suite, file, source, algo, core, seed, alone) for source in suite.transfer.sources}
        groups = [list(before)] if progressive else [[source] for source in before]
        for target, group in product(suite.envs, groups):
            jobs = [before[source] for source in group]
            name = "+".join(job.name_of_env for job in jobs)
            init = {"sources": [job.hash for job in jobs], "carry": "columns" if progressive else carry}
            columns = len(group) if progressive else 0
            scratch = _job(suite, file, target, algo, core, seed, alone)
            transfer = _job(suite, file, target, algo, core, seed, {"init": init}, columns)
            transfer = replace(transfer, source=name)
            cells.append(Cell(core, algo, name, scratch.name_of_env, seed, jobs, scratch, transfer))
    return cells


def _jobs(suite: Suite, file: str) -> list[AgentJob]:
    try:
        for env in [*suite.envs, *(suite.transfer.sources if suite.transfer else ())]:
            _check_variants(suite, env, resolve(env, **_checked_options(suite.env_options)))
        if (suite.transfer is None) == (suite.report == "transfer"):
            raise UserError(f"report: {suite.report} does not fit; a suite has report: transfer if it has transfer:")
        if suite.transfer is not None:
            parse_carry(suite.transfer.carry)
        elif PROGRESSIVE in (_core_of(suite, core) for core in suite.cores):
            raise UserError("cores: a progressive network needs sources; give them as transfer: {sources: [...]}")
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    if suite.transfer is not None:
        cells = transfer_cells(suite, file)
        _check_distinct([cell.transfer for cell in cells], file)
        # whole seeds, and in each of them what others need comes first
        jobs = [
            job
            for seed in suite.seeds
            for kind in ([c.before for c in cells], [[c.scratch] for c in cells], [[c.transfer] for c in cells])
            for job in chain(*kind)
            if job.seed == seed
        ]
        first: dict[str, AgentJob] = {}
        for job in jobs:
            first.setdefault(job.hash, job)
        return list(first.values())
    grid = product(suite.seeds, suite.envs, suite.algos, suite.cores)
    jobs = [_job(suite, file, env, algo, core, seed) for seed, env, algo, core in grid]
    _check_distinct(jobs, file)
    return jobs


def _supervised_jobs(suite: Suite, file: str) -> list[SupervisedJob]:
    jobs = []
    for seed, task, core in product(suite.seeds, suite.supervised, suite.cores):
        try:
            config = _task_config(find_task(task), suite, core)
        except UserError as error:
            raise UserError(f"{file}: supervised.{task}, {core}: {error}") from error
        jobs.append(SupervisedJob(find_task(task), config, seed, label=f"{task}_{core}"))
    _check_distinct(jobs, file)
    return jobs


def _task_config(task: type[Task], suite: Suite, core: str) -> TaskConfig:
    of_core = suite.cores[core]
    given: Values = {key: of_core[key] for key in ("num_rims", "num_active") if key in of_core}
    options = {f"core_kwargs.{key}": value for key, value in of_core.get("core_kwargs", {}).items()}
    more = of_core.get(SUPERVISED, {})
    for_all = {key: value for key, value in more.items() if key not in suite.supervised}
    settings = [suite.supervised[task.name], {"core": _core_of(suite, core)}, given, options, for_all]
    return load(task, {key: value for layer in (*settings, more.get(task.name, {})) for key, value in layer.items()})


def _check_distinct(jobs: Sequence[Job], file: str) -> None:
    first: dict[str, Job] = {}
    for job in jobs:
        if (other := first.setdefault(job.hash, job)) is not job:
            raise UserError(f"{file}: {other.name} and {job.name} are the same job; change one, or leave it out")


def _core_of(suite: Suite, name: str) -> str:
    return str(suite.cores[name].get("core", name))


def _job(
    suite: Suite, file: str, env: str, algo: str, core: str, seed: int, more: Values | None = None, columns: int = 0
) -> AgentJob:
    """``more`` goes into the definition; with ``columns``, it is a progressive network."""
    resolved = resolve(env, **suite.env_options)
    of_core = {key: value for key, value in suite.cores[core].items() if key not in (*ALGORITHMS, SUPERVISED)}
    kind = _core_of(suite, core)
    layers = [
        (f"{file}: overrides", suite.overrides),
        (f"{file}: algos.{algo}", suite.algos[algo]),
        (f"{file}: cores.{core}", of_core | {"core": "lstm" if kind == PROGRESSIVE else kind}),
        (f"{file}: cores.{core}.{algo}", suite.cores[core].get(algo, {})),
        (f"{file}: transfer", {"policy_kwargs.columns": columns} if columns else {}),
    ]
    for where, values in layers:
        if not isinstance(values, dict):
            raise UserError(f"{where} must be a mapping of hyperparameters, got {values!r}")
        if "n_timesteps" in values and values is not suite.algos[algo]:
            raise UserError(f"{where}: n_timesteps is for algos only; write steps at the top of the file")
    config = zoo.load(resolved, algo, layers=[(f"{file}: steps", {"n_timesteps": suite.steps}), *layers]).config
    if "." not in config.core:  # a path would import code, which only jobs need
        try:
            core_factory(config.core)
        except ValueError as error:
            raise UserError(f"{file}: cores.{core}: {error}") from error
    variants = suite.evaluation.of(env)
    definition = {
        "env": resolved.id,
        # an option that is not used must not count: the next version may have more of them
        "env_options": {key: value for key, value in resolved.options.items() if value is not None},
        "algo": algo,
        "seed": seed,
        "config": config.definition(),
        "games_start_again_every": suite.checkpoint_freq if suite.exact_resume else None,
        "evaluation": {
            "episodes": suite.evaluation.episodes,
            "variants": None if variants is None else list(choose_variants(resolved, variants)),
            "seed": EVALUATION_SEED,
            **({"without_each_rim": True} if suite.evaluation.without_each_rim else {}),  # off, it changes no hash
        },
        "curve": suite.curve and suite.curve.model_dump(exclude_defaults=True),
        **(more or {}),
    }
    return AgentJob(env, resolved.name, algo, core, seed, suite.checkpoint_freq, definition)


def _checked_options(options: Values) -> Values:
    for key in options:
        if key not in OPTIONS:
            hint = did_you_mean(key, OPTIONS, f"the options are {', '.join(OPTIONS)}")
            raise UserError(f"env_options: there is no option {key!r}; {hint}")
    return options


def _check_variants(suite: Suite, name: str, env: Resolved) -> None:
    played = suite.evaluation.of(name)
    if (played is None) == (suite.report == "variants") and suite.report not in ("mechanisms", "atari"):
        remedy = "name evaluation.variants" if played is None else "leave evaluation.variants out"
        raise UserError(f"report: {suite.report} does not fit the evaluation; {remedy}, or choose another report")
    names = [] if played is None else list(choose_variants(env, played))
    if suite.curve and (missing := [name for name in suite.curve.variants if name not in names]):
        raise UserError(f"curve.variants: {missing[0]} must be one of evaluation.variants too")


def _explain(error: ValidationError) -> str:
    """A sentence about one mistake: a key that does not exist, which may be the one that is missing, or the first."""
    detail = min(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")
    *parents, key = [str(part) for part in detail["loc"] if part != "[key]"]
    place = ".".join([*parents, key])
    if detail["type"] == "missing":
        return f"the key {place} is missing"
    if detail["type"] != "extra_forbidden":
        return f"{place} must be {wanted(detail['msg'])}, got {detail['input']!r}"
    models: dict[str, type[BaseModel]] = {
        "": Suite, "evaluation": Evaluation, "curve": Curve, "transfer": Transfer
    }  # fmt: skip
    model = models[".".join(parents)]
    hint = did_you_mean(key, model.model_fields, f"the keys are {', '.join(model.model_fields)}")
    return f"there is no key {place!r}; {hint}"
