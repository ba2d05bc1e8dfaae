"""Options that several commands have."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rims_rl.common.errors import UserError


def read_steps(text: str) -> int:
    """``1e6`` is a million, as ``1_000_000`` and ``1000000`` are."""
    try:
        number = float(text)
        if number == int(number) and number >= 0:
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(f"must be a whole number, such as 100000 or 1e5, got {text!r}")


RESULTS = Path("results")  # where commands write their results by default, in the current folder
Threads = Annotated[int, typer.Option(min=1, help="Threads torch may use.")]
AllThreads = Annotated[
    int, typer.Option(min=1, show_default="all that this process may use", help="Threads torch may use.")
]
Repeats = Annotated[int, typer.Option(min=1, help="Timed repeats of each measurement.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer and smaller cases, to see that it works.")]
Out = Annotated[Path, typer.Option(help="JSON file to write.")]
Algo = Annotated[str, typer.Option(help="ppo or a2c.")]
Config = Annotated[Path | None, typer.Option(help="YAML file of your own values.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one value.")]
Trust = Annotated[bool, typer.Option("--trust", help="Load .zip files, and import the code that a run names.")]
Seed = Annotated[int, typer.Option(min=0, max=2**30, help="Seed of weights, actions and environments.")]
Backend = Annotated[str | None, typer.Option(help="Of Atari games: ale (default, fast) or sb3 (modes, difficulties).")]
GameMode = Annotated[int | None, typer.Option(help="ALE's mode of an Atari game; needs sb3.")]
Difficulty = Annotated[int | None, typer.Option(help="ALE's difficulty of an Atari game; needs sb3.")]
GymPackages = Annotated[
    list[str] | None,
    typer.Option(metavar="MODULE", help="Import it, so that Gymnasium knows its environments; several times."),
]
EnvKwargs = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Argument of the environment; several times.")
]
EnvWrapper = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="Dotted path, or 'PATH: {key: value}'; several times, the innermost first."),
]
FrameStack = Annotated[int | None, typer.Option(min=2, help="Observations that are seen at once.")]
VecEnv = Annotated[
    str | None, typer.Option(help="dummy (default): in this process; subproc: one each; vector: Gymnasium's own.")
]
Deterministic = Annotated[
    bool | None, typer.Option("--deterministic/--stochastic", help="Default: stochastic on Atari and MiniGrid only.")
]
Drop = Annotated[str | None, typer.Option(metavar="RIMS", help="Take these RIMs out, such as 2,3.")]
Force = Annotated[str | None, typer.Option(metavar="RIMS", help="Let these RIMs always be active, such as 0.")]


def read_rims(flag: str, text: str | None) -> tuple[int, ...]:
    """``"2,3"`` -> ``(2, 3)``."""
    try:
        return () if text is None else tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UserError(f"{flag} takes numbers of RIMs, such as 2,3, got {text!r}") from None


def env_options(
    gym_packages: list[str] | None,
    env_kwargs: list[str] | None,
    env_wrapper: list[str] | None,
    frame_stack: int | None,
    vec_env: str | None,
) -> dict[str, Any]:
    """What rl_zoo3's options say of an environment, as verbs take it."""
    from rims_rl.config.layers import parse_overrides, parse_wrappers

    kwargs = parse_overrides(env_kwargs or [], "size=8 or render_fps=10", "env_kwargs")
    return {
        "gym_packages": gym_packages or None,
        "env_kwargs": kwargs or None,
        "env_wrapper": parse_wrappers(env_wrapper or []) or None,
        "frame_stack": frame_stack,
        "vec_env": vec_env,
    }


def local_run(run: Path) -> Path:
    """A run, or a policy that was taken from where it is because ``run`` is its name: ``zoo:NAME``, a trained agent of
    the repository, or ``hf:owner/name``, of the Hugging Face hub."""
    from rims_rl.exporting.hub import HUB, pull
    from rims_rl.exporting.trained_agents import ZOO, take

    name = str(run)
    return take(name) if name.startswith(ZOO) else pull(name) if name.startswith(HUB) else run


def was_given(context: typer.Context, name: str) -> bool:
    """Whether an option was written on the command line, even with its default value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
