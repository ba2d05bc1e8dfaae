"""Trained agents to play with: folders of the repository that ``rims-rl share --small`` wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import rims_rl
from rims_rl.agents.saved.description import Description
from rims_rl.agents.saved.policy_files import read_description
from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing
from rims_rl.common.suggestions import did_you_mean
from rims_rl.exporting.hub import POLICY

ZOO = "zoo:"  # how their names begin
PLACE = "docs/agents"  # in the repository; the wheel does not hold it
FOLDER = Path(rims_rl.__file__).parents[1] / PLACE


def trained_agents() -> dict[str, Description]:
    """What those that are there say of themselves, by name."""
    files = sorted(FOLDER.glob(f"*/{POLICY}"), key=lambda file: file.parent.name.lower())
    if not files:
        raise UserError(
            f"trained agents are in {PLACE} of the repository, and {FOLDER} has none; clone the repository, or give "
            f"the path of a folder of its {PLACE} instead of {ZOO}NAME"
        )
    return {file.parent.name: read_description(file) for file in files}


def take(name: str, logdir: Path = Path("logs")) -> Path:
    """The trained agent ``name`` in ``<logdir>/zoo/<name>``, which is used like the folder of a run."""
    name = name.removeprefix(ZOO)
    agents = trained_agents()
    if name not in agents:
        known = f"there are {', '.join(agents)}"
        raise UserError(f"there is no trained agent called {name!r}; {did_you_mean(name, agents, known)}")
    folder = logdir / "zoo" / name
    try:
        with replacing(folder / POLICY) as temporary:
            shutil.copyfile(FOLDER / name / POLICY, temporary)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
    return folder
