"""The environment that a saved policy was trained on."""

from __future__ import annotations

from typing import Any

from rims_rl.agents.saved.description import Description
from rims_rl.common.errors import UserError
from rims_rl.envs.names import Resolved, resolve


def resolve_saved(description: Description, **changes: Any) -> Resolved:
    """The environment that a policy names, with those ``changes`` that are not None."""
    if description.env is None:
        raise UserError("the run's policy.json does not say which environment the policy was trained on")
    changed = {key: value for key, value in changes.items() if value is not None}
    return resolve(description.env, **description.env_options.given() | changed)
