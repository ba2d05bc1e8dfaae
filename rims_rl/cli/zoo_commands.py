"""``rims-rl zoo``: what training would use."""

from typing import Annotated

import typer

from rims_rl.cli.app import app
from rims_rl.cli.options import Algo, Config, Set

zoo = typer.Typer(help="List the configurations of the zoo, or show one.")
app.add_typer(zoo, name="zoo")


@zoo.callback(invoke_without_command=True)
def _zoo(context: typer.Context) -> None:
    """List the configurations that come with rims-rl."""
    if context.invoked_subcommand is None:
        from rims_rl.config.zoo import print_configs

        print_configs()


@zoo.command("show")
def _zoo_show(
    env: Annotated[str, typer.Argument(help="An Atari game, such as DemonAttack, or any Gymnasium id.")],
    algo: Algo = "ppo",
    config: Config = None,
    set_: Set = None,
) -> None:
    """Print what training on ENV would use, and where each value comes from."""
    from rims_rl.config.zoo import print_config

    print_config(env, algo, config, set_ or [])
