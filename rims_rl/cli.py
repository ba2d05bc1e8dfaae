"""The ``rims-rl`` command: parses arguments, then calls one function of one verb module.

Verb modules import torch, so each command imports its own when it runs and ``rims-rl --help`` stays quick.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rims_rl import __version__
from rims_rl.errors import UserError

__all__ = ["app", "main"]

app = typer.Typer(
    name="rims-rl",
    help="Agents with Recurrent Independent Mechanisms: train, test, look inside and ship them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a plain traceback is easier to paste into a bug report
)

bench = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")
zoo = typer.Typer(help="List the configurations of the zoo, or show one.")
app.add_typer(zoo, name="zoo")
suite = typer.Typer(help="List whole experiments, run one, or make its page.")
app.add_typer(suite, name="suite")


def main() -> None:
    """Run the command line; a UserError, or a file that is not as it should be, becomes one line and exit code 2."""
    try:
        app(prog_name="rims-rl")
    except UserError as error:
        message = str(error)
    except OSError as error:
        if error.strerror is None:  # not from the operating system
            raise
        message = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    else:
        return
    print(f"rims-rl: {message}", file=sys.stderr)
    sys.exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rims-rl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


CORES = os.cpu_count() or 1
Threads = Annotated[int, typer.Option(min=1, help="Threads torch may use.")]
Repeats = Annotated[int, typer.Option(min=1, help="Timed repeats of each measurement.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer and smaller cases, to see that it works.")]
Out = Annotated[Path, typer.Option(help="JSON file to write.")]
Algo = Annotated[str, typer.Option(help="ppo or a2c.")]
Config = Annotated[Path | None, typer.Option(help="YAML file of your own values.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one value.")]
Trust = Annotated[bool, typer.Option("--trust", help="Load files that can run code, such as .zip.")]
Seed = Annotated[int, typer.Option(min=0, max=2**30, help="Seed of weights, actions and environments.")]
Backend = Annotated[str | None, typer.Option(help="Of Atari games: ale (default, fast) or sb3 (modes, difficulties).")]
GameMode = Annotated[int | None, typer.Option(help="ALE's mode of an Atari game; needs sb3.")]
Difficulty = Annotated[int | None, typer.Option(help="ALE's difficulty of an Atari game; needs sb3.")]
Deterministic = Annotated[
    bool | None, typer.Option("--deterministic/--stochastic", help="Default: stochastic on Atari and MiniGrid only.")
]
Drop = Annotated[str | None, typer.Option(metavar="RIMS", help="Take these RIMs out, such as 2,3.")]
Force = Annotated[str | None, typer.Option(metavar="RIMS", help="Let these RIMs always be active, such as 0.")]


@app.command("train")
def _train(
    context: typer.Context,
    env: Annotated[
        str | None, typer.Option(help="An Atari game, such as DemonAttack, PickupKnown, or any Gymnasium id.")
    ] = None,
    algo: Algo = "ppo",
    core: Annotated[str | None, typer.Option(help="rims, lstm, gru, none, rmc, ntm, dnc, entnet, or your own.")] = None,
    n_timesteps: Annotated[int | None, typer.Option("--n-timesteps", "-n", min=1, help="Steps to train for.")] = None,
    n_envs: Annotated[int | None, typer.Option(min=1, help="Environments side by side.")] = None,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
    threads: Threads = CORES,
    config: Config = None,
    set_: Set = None,
    logdir: Annotated[Path, typer.Option(help="Where the folder of the run is made.")] = Path("logs"),
    eval_freq: Annotated[int, typer.Option(min=0, help="Evaluate every so many steps; 0: never.")] = 250_000,
    eval_episodes: Annotated[int, typer.Option(min=1, help="Episodes of each evaluation.")] = 10,
    backend: Backend = None,
    game_mode: GameMode = None,
    difficulty: Difficulty = None,
    observation: Annotated[str | None, typer.Option(help="Of MiniGrid and BabyAI: symbolic (default) or rgb.")] = None,
    distractors: Annotated[
        str | None, typer.Option(help="Over the frames of Atari games: known; docs/distractors.md has others.")
    ] = None,
    checkpoint_freq: Annotated[
        int, typer.Option(min=1, help="Steps between checkpoints: what a crash may cost. A few minutes on Atari.")
    ] = 100_000,
    exact_resume: Annotated[
        bool,
        typer.Option("--exact-resume", help="Start all games again at each checkpoint, so that resuming is exact."),
    ] = False,
    init_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Start with its weights: a run's folder or a .safetensors file.")
    ] = None,
    carry: Annotated[
        str | None,
        typer.Option(
            metavar="PARTS",
            help="What to take over from there, such as encoder=finetune,core=freeze,rims=0,2. Default: everything.",
        ),
    ] = None,
    column: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="A frozen column of a progressive network; may be given several times."),
    ] = None,
    keep_policies_every: Annotated[
        int, typer.Option(min=0, help="Keep the policy in RUN/policies every so many steps; 0: never.")
    ] = 0,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with this folder. Takes only -n besides.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Train an agent."""
    from rims_rl import train
    from rims_rl.runs import Arguments

    if resume is not None:
        given = [p.opts[0] for p in context.command.params if p.name and _given(context, p.name)]
        if others := [flag for flag in given if flag not in ("--resume", "--n-timesteps")]:
            raise UserError(f"--resume takes its settings from {resume}, and only -n besides; leave out {others[0]}")
        train.resume(resume, n_timesteps)
        return
    if env is None:
        raise UserError("what to train on is missing: give --env, such as --env DemonAttack, or --resume RUN")
    if carry is not None and init_from is None:
        raise UserError(f"--carry {carry} says what to take over, and --init-from RUN from where; give that too")
    if column and init_from is not None:
        raise UserError("--column and --init-from are two ways to use what was learned; give one of them")
    flags = {"core": core, "n_timesteps": n_timesteps, "n_envs": n_envs}
    overrides = (set_ or []) + [f"{key}={value}" for key, value in flags.items() if value is not None]
    arguments = Arguments(
        env=env,
        backend=backend,
        game_mode=game_mode,
        difficulty=difficulty,
        observation=observation,
        distractors=distractors,
        algo=algo,
        seed=seed,
        device=device,
        threads=threads,
        eval_freq=eval_freq,
        eval_episodes=eval_episodes,
        checkpoint_freq=checkpoint_freq,
        exact_resume=exact_resume,
        init_from=None if init_from is None else str(init_from),
        carry=carry,
        columns=[str(run) for run in column or []],
        keep_policies_every=keep_policies_every,
    )
    train.train(arguments, config, overrides, logdir, trust)


def _given(context: typer.Context, name: str) -> bool:
    """Whether an option was written on the command line, even with its default value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@app.command("evaluate")
def _evaluate(
    context: typer.Context,
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folder of a run, its folder best, or a .safetensors file; with --random, an environment; with "
            "--variants, one or several.",
        ),
    ],
    variants: Annotated[
        str | None,
        typer.Option(help="Variants of the environment to test in, such as known,novel-colour, or all of them: all."),
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes.")] = 100,
    deterministic: Deterministic = None,
    seed: Seed = 0,
    n_envs: Annotated[int, typer.Option(min=1, help="Environments side by side.")] = 8,
    threads: Threads = CORES,
    out: Annotated[Path | None, typer.Option(help="JSON file to write. Default: in the run.")] = None,
    random: Annotated[bool, typer.Option("--random", help="Draw actions at random in the environment RUN.")] = False,
    drop: Annotated[
        str | None,
        typer.Option(metavar="RIMS", help="Take these RIMs out, such as 2,3; each: every one in turn, and none."),
    ] = None,
    force: Force = None,
    backend: Backend = None,
    game_mode: GameMode = None,
    difficulty: Difficulty = None,
    trust: Trust = False,
) -> None:
    """Play a trained agent and say how well it does; also where it was not trained, or without some of its RIMs."""
    from rims_rl.interventions import read_rims

    options = {"backend": backend, "game_mode": game_mode, "difficulty": difficulty}
    if variants is not None:
        from rims_rl.evaluate_variants import evaluate_variants

        given = [key.replace("_", "-") for key in ("random", "drop", "force", *options) if _given(context, key)]
        if given:
            raise UserError(f"--variants plays runs as they were trained, but for the variant; leave out --{given[0]}")
        names = [name.strip() for name in variants.split(",")]
        evaluate_variants(runs, names, episodes, deterministic, seed, n_envs, threads, out, trust)
        return
    from rims_rl.evaluate import evaluate

    if len(runs) > 1:
        raise UserError(f"several runs are compared in variants, so give --variants, or leave out {runs[1]}")
    (run,) = runs
    if random and (drop or force):
        raise UserError("--random plays random actions: leave out --drop and --force")
    forced = read_rims("--force", force)
    if drop == "each":
        from rims_rl.evaluate_drop import evaluate_each

        evaluate_each(run, episodes, deterministic, seed, n_envs, threads, out, trust, forced, **options)
        return
    dropped = read_rims("--drop", drop)
    evaluate(run, episodes, deterministic, seed, n_envs, threads, out, random, trust, dropped, forced, **options)


@app.command("report")
def _report(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    baseline: Annotated[
        list[Path] | None, typer.Option(help="JSON of rims-rl evaluate to compare with; may be given several times.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file to write, with a PNG beside it. Default: in RUN.")] = None,
) -> None:
    """Gather what came out of a run: one JSON file, one picture."""
    from rims_rl.report import report

    report(run, baseline or [], out)


@app.command("enjoy")
def _enjoy(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or its folder best.")],
    out: Annotated[Path | None, typer.Option(help="File to write: .mp4 or .gif. Default: in the run.")] = None,
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes; on Atari, whole games.")] = 1,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps.")] = None,
    deterministic: Deterministic = None,
    seed: Seed = 0,
    fps: Annotated[
        float | None,
        typer.Option(
            min=1, max=1000, help="Frames, that is steps, per second of the video. Default: the game's own speed."
        ),
    ] = None,
    window: Annotated[bool, typer.Option("--window", help="Show a window instead of writing a file.")] = False,
    threads: Threads = CORES,
    game_mode: Annotated[int | None, typer.Option(help="ALE's mode of an Atari game. Default: the run's.")] = None,
    difficulty: Annotated[int | None, typer.Option(help="ALE's difficulty. Default: the run's.")] = None,
    overlay: Annotated[bool, typer.Option("--overlay", help="Draw what RIMs do beside the game.")] = False,
    drop: Drop = None,
    force: Force = None,
) -> None:
    """Watch a trained agent: a video in colour, or a window."""
    from rims_rl.enjoy import enjoy
    from rims_rl.interventions import read_rims

    rims = read_rims("--drop", drop), read_rims("--force", force)
    enjoy(
        run, out, episodes, max_steps, deterministic, seed, fps, window, threads, game_mode, difficulty, overlay, *rims
    )


@app.command("inspect")
def _inspect(
    run: Annotated[Path, typer.Argument(help="Folder of a run whose core is rims, or its folder best.")],
    out: Annotated[Path | None, typer.Option(help="Recording to write: .npz. Default: in the run.")] = None,
    html: Annotated[Path | None, typer.Option(help="Page to write, too: one .html file, to open in a browser.")] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Folder to write pictures and statistics to: use, events, information.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Another run, to be played alike and put beside it in pictures.")
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes; on Atari, whole games.")] = 1,
    variant: Annotated[
        str | None, typer.Option(help="Variant of the environment to play in, such as novel-colour.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps.")] = None,
    deterministic: Deterministic = None,
    seed: Seed = 0,
    threads: Threads = CORES,
    drop: Drop = None,
    force: Force = None,
) -> None:
    """Record what each RIM does while the agent plays; make a page to look through it, or pictures."""
    from rims_rl.inspect.record import inspect
    from rims_rl.interventions import read_rims

    rims = read_rims("--drop", drop), read_rims("--force", force)
    inspect(run, out, html, episodes, variant, max_steps, deterministic, seed, threads, *rims, pictures, compare)


@app.command("export")
def _export(
    run: Annotated[Path, typer.Argument(help="Folder of a run, its folder best, or an exported .safetensors file.")],
    format: Annotated[str, typer.Option(help="onnx, safetensors or pt2.")] = "onnx",
    out: Annotated[Path | None, typer.Option(help="File to write. Default: in the run, named after the env.")] = None,
    card: Annotated[bool, typer.Option("--card", help="Write a model card, README.md, beside it.")] = False,
    trust: Trust = False,
) -> None:
    """Write a trained agent as one file, and check that it plays like the agent."""
    from rims_rl.export import export

    export(run, format, out, card, trust)


@bench.command("core")
def _bench_core(
    threads: Threads = 2, repeats: Repeats = 7, quick: Quick = False, out: Out = Path("docs/results/bench_core.json")
) -> None:
    """Time the RIM core side by side with torch's LSTM and GRU."""
    from rims_rl.bench.core import bench_core

    bench_core(threads, repeats, quick, out)


@bench.command("update")
def _bench_update(
    threads: Threads = 2, repeats: Repeats = 3, quick: Quick = False, out: Out = Path("docs/results/bench_update.json")
) -> None:
    """Time one PPO update and one rollout step side by side with stock RecurrentPPO."""
    from rims_rl.bench.update import bench_update

    bench_update(threads, repeats, quick, out)


@bench.command("train")
def _bench_train(
    env: Annotated[str, typer.Option(help="An Atari game or a MiniGrid environment.")] = "DemonAttack",
    threads: Threads = 2,
    repeats: Repeats = 5,
    quick: Quick = False,
    out: Annotated[Path | None, typer.Option(help="JSON file to write. Default: in docs/results.")] = None,
) -> None:
    """Time training side by side with stock RecurrentPPO, and say where the time goes."""
    from rims_rl.bench.train import bench_train

    bench_train(env, threads, repeats, quick, out)


@bench.command("export")
def _bench_export(
    threads: Threads = 1, repeats: Repeats = 5, quick: Quick = False, out: Out = Path("docs/results/bench_export.json")
) -> None:
    """Time one step of an exported policy side by side with the policy."""
    from rims_rl.bench.export import bench_export

    bench_export(threads, repeats, quick, out)


@bench.command("supervised")
def _bench_supervised(
    threads: Threads = 1,
    repeats: Repeats = 5,
    quick: Quick = False,
    out: Out = Path("docs/results/bench_supervised.json"),
) -> None:
    """Time training on the copying task with every core, side by side."""
    from rims_rl.bench.supervised import bench_supervised

    bench_supervised(threads, repeats, quick, out)


@bench.command("trace")
def _bench_trace(
    threads: Threads = 1, repeats: Repeats = 5, quick: Quick = False, out: Out = Path("docs/results/bench_trace.json")
) -> None:
    """Time what looking inside costs a step of a policy, off and on."""
    from rims_rl.bench.trace import bench_trace

    bench_trace(threads, repeats, quick, out)


@app.command("supervised")
def _supervised(
    task: Annotated[str | None, typer.Argument(help="Name of a task, such as copying.")] = None,
    core: Annotated[
        list[str] | None, typer.Option(help="As for train, or transformer; may be given several times. Default: rims.")
    ] = None,
    set_: Set = None,
    ablations: Annotated[bool, typer.Option("--ablations", help="Train RIMs of the task's ablation table.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Train with seeds 0, 1, ... up to so many.")] = 1,
    threads: Threads = CORES,
    workers: Annotated[int | None, typer.Option(min=0, help="Processes that make data. Default: the task's.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of MNIST's files. Default: in your cache.")] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            help="Folder of results. Default: docs/results/supervised in a checkout, else results/supervised."
        ),
    ] = None,
    logdir: Annotated[Path, typer.Option(help="Where checkpoints and networks are kept.")] = Path("logs"),
    page: Annotated[bool, typer.Option("--page", help="Only write the page of TASK from its results.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the tasks.")] = False,
) -> None:
    """Train cores on one of the paper's supervised tasks; the same command goes on after an interruption."""
    from rims_rl.supervised.tasks import find_task, print_tasks

    if list_:
        print_tasks()
        return
    if task is None:
        raise UserError("which task is missing: give one, such as copying; --list shows them")
    published = Path("docs/results")
    results = results or (published if published.is_dir() else Path("results")) / "supervised"
    if page:
        from rims_rl.supervised.page import write_page

        write_page(find_task(task), results)
        return
    from rims_rl.supervised.run import supervise

    supervise(task, core or [], set_ or [], ablations, seeds, threads, workers, results, logdir, data_dir)


@zoo.callback(invoke_without_command=True)
def _zoo(context: typer.Context) -> None:
    """List the configurations that come with rims-rl."""
    if context.invoked_subcommand is None:
        from rims_rl.zoo import print_configs

        print_configs()


@zoo.command("show")
def _zoo_show(
    env: Annotated[str, typer.Argument(help="An Atari game, such as DemonAttack, or any Gymnasium id.")],
    algo: Algo = "ppo",
    config: Config = None,
    set_: Set = None,
) -> None:
    """Print what training on ENV would use, and where each value comes from."""
    from rims_rl.zoo import print_config

    print_config(env, algo, config, set_ or [])


SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="Name of a suite of ours, or a .yml file.")]
Results = Annotated[
    Path | None,
    typer.Option(help="Folder of results. Default: docs/results/SUITE if there is docs/results, else results/SUITE."),
]
SuiteLogs = Annotated[Path, typer.Option(help="Where the folders of runs are made, below suites/SUITE.")]


@suite.callback(invoke_without_command=True)
def _suite(context: typer.Context) -> None:
    """List the suites that come with rims-rl."""
    if context.invoked_subcommand is None:
        from rims_rl.suite.plan import print_shipped

        print_shipped()


Jobs = Annotated[int | None, typer.Option(min=1, help="Jobs side by side. Default: as many as cores allow.")]
JobThreads = Annotated[int, typer.Option(min=1, help="Threads of each job.")]
Engine = Annotated[str, typer.Option(help="local: processes of this machine; ray: tasks of a Ray cluster.")]
RayAddress = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Head of the cluster. Default: found by Ray.")
]
Gpus = Annotated[float, typer.Option(min=0, help="GPUs of each job on Ray; may be a part of one.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list the jobs, and measure how long they'd take.")]


@suite.command("run")
def _suite_run(
    suite: SuiteName,
    jobs: Jobs = None,
    threads: JobThreads = 1,
    results: Results = None,
    logdir: SuiteLogs = Path("logs"),
    engine: Engine = "local",
    ray_address: RayAddress = None,
    gpus: Gpus = 0.0,
    dry_run: DryRun = False,
) -> None:
    """Run the jobs that are not finished; after a crash or Ctrl-C, the same command goes on."""
    from rims_rl.suite.plan import read_plan
    from rims_rl.suite.results import results_folder
    from rims_rl.suite.run import How, run

    plan = read_plan(suite)
    run(plan, results_folder(plan, results), logdir, How(jobs, threads, dry_run, engine, ray_address, gpus))


@suite.command("job", hidden=True)
def _suite_job(folder: Path, results: Annotated[Path, typer.Option()], threads: Annotated[int, typer.Option()]) -> None:
    """What `suite run` starts in a process of its own."""
    from rims_rl.suite.job import run_job_of

    run_job_of(folder, results, threads)


@suite.command("status")
def _suite_status(suite: SuiteName, results: Results = None, logdir: SuiteLogs = Path("logs")) -> None:
    """Say how far each job is."""
    from rims_rl.suite.plan import read_plan
    from rims_rl.suite.results import results_folder
    from rims_rl.suite.status import print_status

    plan = read_plan(suite)
    print_status(plan, results_folder(plan, results), logdir)


@suite.command("report")
def _suite_report(
    suite: SuiteName,
    results: Results = None,
    out: Annotated[
        Path | None, typer.Option(help="Markdown file to write, with PNGs beside it. Default: RESULTS.md.")
    ] = None,
) -> None:
    """Write the page of a suite from its results alone."""
    from rims_rl.suite.plan import read_plan
    from rims_rl.suite.report import report_suite
    from rims_rl.suite.results import results_folder

    plan = read_plan(suite)
    report_suite(plan, results_folder(plan, results), out)


@app.command("transfer")
def _transfer(
    sources: Annotated[str, typer.Option(metavar="ENV,...", help="What is learned first.")],
    targets: Annotated[str, typer.Option(metavar="ENV,...", help="What is learned then, and from scratch.")],
    core: Annotated[
        str, typer.Option(metavar="CORE,...", help="Among them progressive: frozen columns.")
    ] = "rims,lstm",
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Of each run.")] = 1_000_000,
    carry: Annotated[
        str, typer.Option(metavar="PARTS", help="What to take over, such as encoder=freeze,core=finetune,rims=0,2.")
    ] = "encoder=finetune,core=finetune",
    episodes: Annotated[int, typer.Option(min=1, help="Of the evaluation of each policy.")] = 100,
    algo: Algo = "ppo",
    set_: Set = None,
    name: Annotated[str, typer.Option(help="Of the suite that this makes: LOGDIR/suites/NAME.yml.")] = "transfer",
    jobs: Jobs = None,
    threads: JobThreads = 1,
    results: Results = None,
    logdir: SuiteLogs = Path("logs"),
    engine: Engine = "local",
    ray_address: RayAddress = None,
    gpus: Gpus = 0.0,
    dry_run: DryRun = False,
) -> None:
    """Does what was learned elsewhere help? Train on sources, then on targets, and there also from scratch."""
    from rims_rl.suite.run import How
    from rims_rl.transfer import transfer

    how = How(jobs, threads, dry_run, engine, ray_address, gpus)
    transfer(sources, targets, core, seeds, steps, carry, episodes, algo, set_ or [], name, results, logdir, how)
