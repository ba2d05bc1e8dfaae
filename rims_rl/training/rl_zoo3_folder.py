"""``<run>/ppo_lstm``: a finished run once more, laid out so that rl_zoo3's enjoy plays it.

rl_zoo3 looks below the folder it is given for one with its own name of the algorithm, and knows recurrent policies only
as ``ppo_lstm``, which is sb3-contrib's RecurrentPPO. So that is what these models are, whatever they were trained with:
the policy is all that playing needs. They are pickles, which our commands never read.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import sb3_contrib
import torch
import yaml  # type: ignore[import-untyped]
from safetensors.torch import load_file

from rims_rl.agents import RecurrentPPO
from rims_rl.common.files import replacing
from rims_rl.envs.atari.sb3_wrappers import env_arguments
from rims_rl.envs.minigrid.observation import wrapper_arguments
from rims_rl.envs.names import Resolved


def write_rl_zoo3_folder(run: Path, env: Resolved, model: RecurrentPPO) -> None:
    """The policy of ``model``, the best one of ``run`` if there were evaluations, and how ``env`` is made."""
    env_id = env.id.rpartition(":")[2]  # a module goes into its --gym-packages
    name = env_id.replace("/", "-")  # as rl_zoo3 has it in names of files
    policies = {name: model.policy.state_dict()}
    if (run / "best" / "policy.safetensors").exists():
        policies["best_model"] = load_file(run / "best" / "policy.safetensors")
    files = {f"{file}.zip": _stock_model(model, weights) for file, weights in policies.items()}
    env_kwargs, wrappers = _describe(env)
    normalize = model.get_vec_normalize_env()
    settings = {
        "args.yml": {"algo": "ppo_lstm", "env": env_id, "seed": model.seed, "env_kwargs": env_kwargs},
        "config.yml": {"normalize": normalize is not None, **wrappers},
    }
    for file, data in settings.items():
        files[f"{name}/{file}"] = yaml.safe_dump(data, sort_keys=False).encode()
    for path, contents in files.items():
        with replacing(run / "ppo_lstm" / path) as temporary:
            temporary.write_bytes(contents)
    if normalize is not None:
        with replacing(run / "ppo_lstm" / name / "vecnormalize.pkl") as temporary:
            normalize.save(str(temporary))


def _stock_model(model: RecurrentPPO, weights: dict[str, torch.Tensor]) -> bytes:
    """A model of sb3-contrib with these weights, and with an optimizer that has done nothing yet."""
    make: Any = sb3_contrib.RecurrentPPO
    arguments = {"use_sde": model.use_sde, "policy_kwargs": model.policy_kwargs, "device": "cpu"}
    stock = make(model.policy_class, None, **arguments, _init_setup_model=False)  # as load() does, without environments
    stock.observation_space, stock.action_space, stock.n_envs = model.observation_space, model.action_space, 1
    stock._setup_model()
    stock.policy.load_state_dict(weights, strict=False)  # names that stand for the same tensor are there once
    stock.num_timesteps = model.num_timesteps
    contents = io.BytesIO()  # torch's own writing to a full disk would not say what is wrong
    stock.save(contents)
    return contents.getvalue()


def _describe(env: Resolved) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Arguments of the environment, and what is put around it."""
    if env.rom is not None:
        around: list[Any] = [
            {"stable_baselines3.common.vec_env.VecFrameStack": {"n_stack": 4}},
            "stable_baselines3.common.vec_env.VecTransposeImage",
        ]
        if env.distractors is not None:
            around.append({"rims_rl.envs.atari.distractors.Distractors": {"which": env.distractors}})
        wrapper = "stable_baselines3.common.atari_wrappers.AtariWrapper"
        arguments = env_arguments(env.sticky, env.game_mode, env.difficulty)
        return arguments, {"env_wrapper": wrapper, "vec_env_wrapper": around}
    wrappers = list(env.env_wrapper or [])
    if env.observation is not None:
        wrapper = "rims_rl.envs.minigrid.observation.MinigridObservation"
        wrappers.append({wrapper: wrapper_arguments(env.id, env.observation)})
    config = {"env_wrapper": wrappers, "frame_stack": env.frame_stack}
    return env.env_kwargs, {key: value for key, value in config.items() if value}
