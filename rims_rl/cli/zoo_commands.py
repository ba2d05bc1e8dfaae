"""``rims-rl zoo``: what training would use, and what was trained."""

import json
from typing import Annotated

import typer

from rims_rl.cli.app import app, with_flags
from rims_rl.cli.options import Algo, Config, Settings

zoo = typer.Typer(help="List the configurations of the zoo, show one, or list trained agents.")
app.add_typer(zoo, name="zoo")


@zoo.callback(invoke_without_command=True)
def _zoo(context: typer.Context) -> None:
    """List the configurations that come with rims-rl."""
    if context.invoked_subcommand is not None:
        return
    from rich.console import Console
    from rich.table import Table

    from rims_rl.config.zoo import all_configs

    table = Table("algo", "section", "policy", "steps", "core", title="zoo_configs")
    table.columns[3].justify = "right"
    for algo, section, config in all_configs():
        core = f"{config.core}, {config.num_active} of {config.num_rims} x {config.rim_size}"
        table.add_row(algo, section, config.policy, f"{config.n_timesteps:,}", core)
    Console().print(table)


@zoo.command("show")
def _zoo_show(
    env: Annotated[str, typer.Argument(help="An Atari game, such as DemonAttack, or any Gymnasium id.")],
    algo: Algo = "ppo",
    config: Config = None,
    settings: Settings = None,
) -> None:
    """Print what training on ENV would use, and where each value comes from."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from rims_rl.config.layers import flatten
    from rims_rl.config.zoo import load

    values, sources = load(env, algo, file=config, overrides=settings or [])
    table = Table("key", "value", "from", title=Text(f"{algo} on {env}"))
    for key, value in flatten(values.model_dump()).items():
        shown = value if isinstance(value, str) else json.dumps(value, default=str)
        table.add_row(key, Text(shown), Text(with_flags(sources[key])))  # Text: [64] is not markup
    Console().print(table)


@zoo.command("agents")
def _zoo_agents() -> None:
    """List the trained agents that come with the repository: zoo:NAME stands for one wherever a run is wanted."""
    from rich.console import Console
    from rich.table import Table

    from rims_rl.agents.saved.description import Score
    from rims_rl.exporting.trained_agents import ZOO, trained_agents

    table = Table("name", "environment", "core", "steps", "mean score, 95 %")
    table.columns[3].justify = "right"
    agents = trained_agents()
    for name, agent in agents.items():
        score = "not evaluated"
        if isinstance(agent.score, Score):
            score = "{:,.2f} ({:,.2f} to {:,.2f})".format(agent.score.mean, *agent.score.mean_95)
        table.add_row(ZOO + name, agent.env, agent.policy_kwargs.core, f"{agent.steps or 0:,}", score)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"to watch one: rims-rl enjoy {ZOO}{next(iter(agents))}")
