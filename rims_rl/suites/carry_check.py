"""Whether all that a suite carries over will fit, before days are spent on training what does not."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm

from rims_rl.agents.policies.progressive import check_column
from rims_rl.agents.saved.policy_files import POLICIES
from rims_rl.common.errors import UserError
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import action_set, resolve
from rims_rl.suites.job import AgentJob, settings_of
from rims_rl.suites.plan import Plan, transfer_cells
from rims_rl.training.carry import Agent, check_carry, parse_carry


def check_transfers(plan: Plan) -> None:
    """A UserError names the core, the environments and the part that does not fit. Seeds do not matter."""
    if plan.suite.transfer is None:
        return
    cells = [cell for cell in transfer_cells(plan.suite, plan.name) if cell.seed == plan.suite.seeds[0]]
    sources = {job.hash: _agent(job) for job in {job.hash: job for cell in cells for job in cell.before}.values()}
    for cell in cells:
        target = _agent(cell.transfer)
        try:
            for job in cell.before:
                source, where = sources[job.hash], f"the agent of {job.name_of_env}"
                if cell.transfer.definition["init"]["carry"] != "columns":
                    check_carry(parse_carry(plan.suite.transfer.carry), target, source, where)
                elif target.normalized:
                    raise UserError("columns need normalize=false; write it into overrides")
                else:
                    check_column(target.policy, source.policy, where)
        except UserError as error:
            raise UserError(f"{plan.name}: {cell.core} cannot be carried to {cell.target}: {error}") from error


def _agent(job: AgentJob) -> Agent:
    """As it would be, without the memory that weights take."""
    settings, options = settings_of(job), job.definition["env_options"]
    with torch.device("meta"):
        try:
            kinds = _spaces(job.env, json.dumps(options))
            policy = POLICIES[settings.policy](*kinds, lambda _: 0.0, **settings.policy_arguments())
        except ValueError as error:
            raise UserError(f"{job.name}: {error}") from error
    return Agent(policy, settings.normalize, action_set(resolve(job.env, **options)))


@cache
def _spaces(name: str, options: str) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Of an environment, with its options as JSON."""
    env = resolve(name, **json.loads(options))
    with torch.device("cpu"):
        envs = BaseAlgorithm._wrap_env(make_envs(env, 1, 0), verbose=0, monitor_wrapper=False)
    envs.close()
    return envs.observation_space, envs.action_space
