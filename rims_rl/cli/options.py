"""Options that several commands have."""

import os
from pathlib import Path
from typing import Annotated

import typer

from rims_rl.common.errors import UserError

CORES = os.cpu_count() or 1
RESULTS = Path("results")  # where commands write their results by default, in the current folder
Threads = Annotated[int, typer.Option(min=1, help="Threads torch may use.")]
Repeats = Annotated[int, typer.Option(min=1, help="Timed repeats of each measurement.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer and smaller cases, to see that it works.")]
Out = Annotated[Path, typer.Option(help="JSON file to write.")]
Algo = Annotated[str, typer.Option(help="ppo or a2c.")]
Config = Annotated[Path | None, typer.Option(help="YAML file of your own values.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one value.")]
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


def read_rims(flag: str, text: str | None) -> tuple[int, ...]:
    """``"2,3"`` -> ``(2, 3)``."""
    try:
        return () if text is None else tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UserError(f"{flag} takes numbers of RIMs, such as 2,3, got {text!r}") from None


def local_run(run: Path) -> Path:
    """A run, or a policy that was pulled because ``run`` is a name of the Hugging Face hub: ``hf:owner/name``."""
    from rims_rl.exporting.hub import is_shared, pull

    return pull(str(run)) if is_shared(run) else run


def was_given(context: typer.Context, name: str) -> bool:
    """Whether an option was written on the command line, even with its default value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
