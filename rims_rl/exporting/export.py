"""A trained policy as one file, which gets its name only after it has played as the policy does."""

from __future__ import annotations

import json
import logging
import os
import shutil
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import ale_py
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array
from rich import get_console
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from rims_rl import runtime
from rims_rl.agents.policies.action_masks import has_masks, mask_size, masks_of
from rims_rl.agents.policies.rims_policies import DIVERGED, MlpRimsPolicy
from rims_rl.agents.saved.description import Description, ExportedDescription
from rims_rl.agents.saved.normalization import with_statistics
from rims_rl.agents.saved.policy_files import load_policy, save_shared, space_to_json
from rims_rl.common.errors import UserError
from rims_rl.common.files import check_writable, replacing, temporary_name
from rims_rl.common.options import Options
from rims_rl.core import RIM, RIMCell
from rims_rl.core.rims.trace import Record
from rims_rl.envs.make import make_envs
from rims_rl.envs.names import Resolved
from rims_rl.envs.one_env import make_one
from rims_rl.evaluation.evaluate import result_path
from rims_rl.exporting.card import check_card, write_card
from rims_rl.exporting.policy_step import PolicyStep
from rims_rl.runs.environment import resolve_saved
from rims_rl.runs.provenance import provenance
from rims_rl.runs.records import EvaluationResult, read_record

TOLERANCE = 1e-5
TIED = 1e-6  # of attention: between RIMs that are closer, rounding decides
State = tuple[np.ndarray, np.ndarray]
Masks = np.ndarray | None
Player = Callable[[Any, State, np.ndarray, Masks], dict[str, np.ndarray]]  # observations, (h, c), starts -> outputs


class ExportOptions(Options):
    """A policy as one file that runs elsewhere."""

    run: Path  # the folder of a run, its folder best, or a .safetensors file
    format: str = "onnx"  # or safetensors, or pt2
    out: Path | None = None  # None: in the run, named after the environment
    card: bool = False  # write a model card beside it
    trust: bool = False  # load files that can run code
    check_steps: int = 500  # at least, for which the file plays beside the policy
    progress: bool = False  # show that it works


@dataclass(frozen=True)
class ExportResult:
    """The file, and how it was checked: it played beside the policy and did the same."""

    file: Path
    runtime: Path | None  # beside an ONNX file: runs it with numpy and onnxruntime alone
    card: Path | None
    steps: int
    episodes: int  # how many ended
    difference: float  # the largest of all outputs
    ties: int  # steps left out of that: which of two RIMs was active was decided by rounding


def export(options: ExportOptions) -> ExportResult:
    """Write the policy of a run, which gets its name only after it has played as the policy does."""
    run, format = options.run, options.format
    if format not in FORMATS:
        raise UserError(f"`format` must be one of {', '.join(FORMATS)}, got {format!r}")
    if options.out is not None:
        if options.out.suffix != f".{format}":
            raise UserError(f"`out` must end with .{format}, got {options.out}")
        check_writable(options.out)
    policy, loaded = load_policy(run, trust=options.trust)
    if policy.use_sde:
        raise UserError(f"{run} explores with gSDE, whose noise is not part of a step; train with use_sde=False")
    env = resolve_saved(loaded)
    out = options.out or (run if run.is_dir() else run.parent) / f"{env.name}.{format}"
    if options.card:
        check_card(out.parent)
    description = _describe_export(loaded, _score(run, loaded.steps), _action_meanings(env))

    temporary = temporary_name(out, out.suffix)  # the compiler wants the suffix at the end
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _status(f"writing the policy and playing {env.name} with it", options.progress):
            checks = _write(policy, description, env, FORMATS[format], temporary, options.check_steps)
        worst = max(checks, key=lambda check: np.nan_to_num(check.difference, nan=np.inf))
        if not worst.difference <= TOLERANCE:  # NaN is refused, too
            state = max(check.state for check in checks)
            diverged = f" (its memory grew to {state:.0e}: it diverged in training)" if state > DIVERGED else ""
            raise UserError(
                f"the exported policy does not do what the policy does{diverged}: {worst.output!r} differs by "
                f"{worst.difference:.1e}, and {TOLERANCE:.0e} is allowed; {out} was not written"
            )
        os.replace(temporary, out)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
    module = None
    if format == "onnx":
        module = out.with_name("rims_runtime.py")
        with replacing(module) as new:
            shutil.copyfile(runtime.__file__, new)
    card = write_card(out, description) if options.card else None
    steps, episodes, ties = (sum(numbers) for numbers in list(zip(*checks, strict=True))[:3])
    return ExportResult(out, module, card, steps, episodes, worst.difference, ties)


class Check(NamedTuple):
    """How a file and its policy compare."""

    steps: int
    episodes: int  # how many ended
    ties: int  # at how many steps of an environment something differed and rounding may have decided who was active
    difference: float  # the largest at all others
    output: str  # where it was
    state: float  # the largest number in the policy's memory


def compare(policy: MlpRimsPolicy, player: Player, envs: VecEnv, steps: int) -> Check:
    """Play both side by side, with actions sampled from the policy.

    Both get the policy's state: the rounding errors of two correct programs may grow from step to step, as differences
    do in any recurrent network, and would hide what is compared. All environments are started twice, the second time
    with states that are not zero any more, and played until an episode has ended, for ten times ``steps`` at most.
    """
    torch.manual_seed(0)
    count, episodes, ties, differences, state = 0, 0, 0, {"": 0.0}, 0.0
    zeros = torch.zeros(policy.num_layers, envs.num_envs, policy.lstm_hidden_state_shape[-1])
    states, masked = RNNStates((zeros, zeros), (zeros, zeros)), has_masks(envs)
    for begin in (0, steps // 2):
        observations: Any = envs.reset()
        starts = np.ones(envs.num_envs, dtype=bool)
        while count < begin + steps // 2 or (begin and not episodes and count < 10 * steps):
            # statistics are part of what was exported
            original = envs.get_original_obs() if isinstance(envs, VecNormalize) else observations
            masks = masks_of(envs) if masked else None
            outputs = player(original, _join(policy, states), starts, masks)
            with policy.allowing(masks):
                expected, actions, states, tied = _expected(policy, observations, states, starts)
            assert expected.keys() == outputs.keys()
            found = _differences(expected, outputs)
            left_out = tied & ~(np.max([*found.values()], 0) <= TOLERANCE)
            ties += int(left_out.sum())
            for name, difference in found.items():
                differences[name] = np.maximum(differences.get(name, 0.0), np.where(left_out, 0, difference).max())
            state = max(state, float(np.abs(expected["next_h"]).max()))
            observations, _, starts, _ = envs.step(actions)
            count += 1
            episodes += int(starts.sum())
    output = max(differences, key=lambda name: np.nan_to_num(differences[name], nan=np.inf))
    return Check(count, episodes, ties, float(differences[output]), output, state)


def load_compiled(path: Path, trust: bool = False) -> Any:
    """The compiled step in a ``.pt2`` file: call it like :class:`rims_rl.exporting.policy_step.PolicyStep`."""
    if not trust:
        raise UserError(f"{path} holds native code, which loading it runs; trust=True if you trust whoever made it")
    try:
        return torch._inductor.aoti_load_package(str(path))
    except Exception as error:  # whatever is in the file
        raise UserError(f"{path} cannot be loaded as a compiled policy: {error}") from error


def _write(
    policy: MlpRimsPolicy, description: Description, env: Resolved, format: Format, path: Path, steps: int
) -> list[Check]:
    """Write the file, and compare it with the policy: four environments, then one."""
    checks: list[Check] = []
    for n_envs in (4, 1):
        envs = make_envs(env, n_envs, 0, 1, clip_rewards=False)
        try:
            step = PolicyStep(policy, envs.observation_space, description.normalization)
            step.masked = has_masks(envs)
            if not checks:
                format.write(step, description, envs.observation_space, path)
            player = format.read(path, envs.observation_space)
            checks.append(compare(policy, player, with_statistics(envs, description.normalization), steps))
        finally:
            envs.close()
    return checks


def _expected(
    policy: MlpRimsPolicy, observations: Any, states: RNNStates, starts: np.ndarray
) -> tuple[dict[str, Any], np.ndarray, RNNStates, np.ndarray]:
    """What the policy says, by its own methods; sampled actions; its new states; and in which environments rounding
    decided who was active."""
    obs, _ = policy.obs_to_tensor(observations)
    episode_starts = torch.as_tensor(starts, dtype=torch.float32)
    with torch.no_grad():
        distribution, _ = policy.get_distribution(obs, states.pi, episode_starts)  # type: ignore[arg-type]
        cores = [core for core in (policy.lstm_actor, policy.lstm_critic) if isinstance(core, RIM)]
        with ExitStack() as tracing:
            traces = [tracing.enter_context(core.trace()) for core in cores]
            action, value, _, states = policy(obs, states, episode_starts, deterministic=True)
    sampled, action = distribution.sample().numpy(), action.numpy()
    result: dict[str, Any] = {"value": value.flatten()}
    inner: Any = distribution.distribution
    if isinstance(policy.action_space, spaces.Box):
        low, high = policy.action_space.low, policy.action_space.high
        sampled, action = np.clip(sampled, low, high), np.clip(action, low, high)
        result |= {"action_mean": inner.mean, "action_log_std": inner.stddev.log()}
    else:
        result["logits"] = torch.cat([part.logits for part in inner], -1) if isinstance(inner, list) else inner.logits
    result |= {"action": action} | dict(zip(("next_h", "next_c"), _join(policy, states), strict=True))
    if traces:
        result["active"] = traces[0].active[-1]
    tied = np.zeros(len(starts), bool)
    for core, trace in zip(cores, traces, strict=True):
        for cell, record in zip(core.cells, trace.layers, strict=True):
            tied |= _tied(cell, record)
    return result, sampled, states, tied


@torch.no_grad()
def _tied(cell: RIMCell, record: Record) -> np.ndarray:
    """In which environments others would win if those who are active attended a little less, and the others more."""
    active, attention = record.active[-1], record.input_attention[-1]
    less = torch.where(active, TIED, -TIED).unsqueeze(-1)
    elements = attention[..., :-1] - less / (attention.shape[-1] - 1)
    nudged = cell.choose_active(torch.cat([elements, attention[..., -1:] + less], -1))
    return (nudged != active).any(1).numpy()


def _differences(expected: dict[str, Any], outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The largest in each environment, for each output. Numbers are relative to the largest of the environment's state
    if that is above 1, since the state is not bounded and rounding errors grow with it; actions and who is active must
    be the same."""
    scale = np.maximum(1, np.abs(expected["next_h"]).max((0, 2)))[:, None]  # (B, 1)
    result = {}
    for name, got in outputs.items():
        wanted = np.asarray(expected[name])
        if name in ("next_h", "next_c"):
            wanted, got = wanted.swapaxes(0, 1), got.swapaxes(0, 1)  # the batch first
        wanted, got = wanted.reshape(len(scale), -1), got.reshape(len(scale), -1)
        if got.dtype.kind in "biu":
            result[name] = (wanted != got).any(1).astype(float)
        else:
            result[name] = (np.abs(wanted - got) / np.maximum(scale, np.abs(wanted))).max(1)
    return result


def _join(policy: MlpRimsPolicy, states: RNNStates) -> State:
    """The states of actor and critic as an exported step has them."""
    cores = [states.pi] if policy.lstm_critic is None else [states.pi, states.vf]
    h, c = (torch.cat(parts).numpy() for parts in zip(*cores, strict=True))
    return h, c


def _describe_export(
    description: Description, score: dict[str, Any] | None, action_meanings: list[str] | None
) -> ExportedDescription:
    versions = {key: value for key, value in provenance().items() if key not in ("seconds", "machine", "loops")}
    added = {"score": score, "action_meanings": action_meanings, **versions}
    return ExportedDescription.model_validate(description.to_json() | added)


def _score(run: Path, steps: int | None) -> dict[str, Any] | None:
    """What ``rims-rl evaluate`` found for this policy, and not for an earlier one of the same run."""
    path = result_path(run)
    if not path.exists():
        return None
    result = read_record(path, EvaluationResult, "evaluate again, or remove it")
    if result.steps != steps:
        return None
    return result.model_dump(include={"mean", "mean_95", "median", "std", "episodes", "deterministic", "seed"})


def _action_meanings(env: Resolved) -> list[str] | None:
    """What the numbers of Discrete actions stand for, where the environment says so: Atari games and MiniGrid."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
    made: Any = make_one(env).unwrapped
    if hasattr(made, "get_action_meanings"):
        return list(made.get_action_meanings())
    return [action.name for action in made.actions] if hasattr(made, "actions") else None


def _status(text: str, shown: bool) -> AbstractContextManager[Any]:
    return get_console().status(text) if shown else nullcontext()


# Formats


def _write_safetensors(step: PolicyStep, description: Description, space: spaces.Space[Any], path: Path) -> None:
    save_shared(step.policy, path, description)


def _read_safetensors(path: Path, space: spaces.Space[Any]) -> Player:
    """By the policy's own methods: this file is read by us, and what is played is the same program."""
    policy, description = load_policy(path, trust=True)  # we have just written it
    step = PolicyStep(policy, space, description.normalization)

    def play(observations: Any, state: State, starts: np.ndarray, masks: Masks) -> dict[str, np.ndarray]:
        prepared = torch.utils._pytree.tree_map(torch.Tensor.numpy, step.prepare(_to_tensors(observations)))
        h, c = map(torch.as_tensor, state)
        cut = 0 if policy.lstm_critic is None else policy.num_layers  # where the critic's layers begin
        states = RNNStates((h[: policy.num_layers], c[: policy.num_layers]), (h[cut:], c[cut:]))
        with policy.allowing(masks):
            expected = _expected(policy, prepared, states, starts)[0]
        return {name: np.asarray(value) for name, value in expected.items()}

    return play


def _write_onnx(step: PolicyStep, description: Description, space: spaces.Space[Any], path: Path) -> None:
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)  # torchvision is not here
    with warnings.catch_warnings(action="ignore"):  # about torch's own code
        traced, outputs = _trace(step, space)
        program: Any = torch.onnx.export(
            traced,
            input_names=[*_input_names(space), "h", "c", "episode_start", *(["action_masks"] if step.masked else [])],
            output_names=outputs,
            dynamo=True,
            verbose=False,
            custom_translation_table={torch.ops.aten.sort.stable: _stable_sort},
        )
    program.model.metadata_props[runtime.KEY] = json.dumps(_describe_step(step, description, space))
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # where in which file of this machine the exporter met it
    program.save(path, external_data=False)


def _read_onnx(path: Path, space: spaces.Space[Any]) -> Player:
    agent = runtime.load(path)

    def play(observations: Any, state: State, starts: np.ndarray, masks: Masks) -> dict[str, np.ndarray]:
        agent.state = state
        result = agent.step(observations, starts, masks)
        return result | dict(zip(("next_h", "next_c"), agent.state, strict=True))

    return play


def _write_pt2(step: PolicyStep, description: Description, space: spaces.Space[Any], path: Path) -> None:
    if not any(shutil.which(compiler) for compiler in (os.environ.get("CXX", "g++"), "clang++")):
        raise UserError("`format` pt2 needs a C++ compiler, and there is no g++; install one, or use `format` onnx")
    metadata = {runtime.KEY: json.dumps(_describe_step(step, description, space))}
    with warnings.catch_warnings(action="ignore"):  # about torch's own code
        traced, _ = _trace(step, space)
        torch._inductor.aoti_compile_and_package(
            traced, package_path=str(path), inductor_configs={"aot_inductor.metadata": metadata}
        )


def _read_pt2(path: Path, space: spaces.Space[Any]) -> Player:
    return _player(load_compiled(path, trust=True))  # we have just made it


class Format(NamedTuple):
    write: Callable[[PolicyStep, Description, spaces.Space[Any], Path], None]
    read: Callable[[Path, spaces.Space[Any]], Player]


FORMATS = {
    "onnx": Format(_write_onnx, _read_onnx),
    "safetensors": Format(_write_safetensors, _read_safetensors),
    "pt2": Format(_write_pt2, _read_pt2),
}


def _describe_step(step: PolicyStep, description: Description, space: spaces.Space[Any]) -> dict[str, Any]:
    """The description for those who run the step: the environment's space, and the size of the state."""
    sizes = {"layers": step.layers, "hidden_size": step.policy.lstm_hidden_state_shape[-1]}
    return description.to_json() | sizes | {"observation_space": space_to_json(space)}


def _trace(step: PolicyStep, space: spaces.Space[Any]) -> tuple[torch.export.ExportedProgram, list[str]]:
    """The step as a graph for any batch, and the names of its outputs."""
    observation = _to_tensors(create_empty_array(space, 2))
    state = torch.zeros(step.layers, 2, step.policy.lstm_hidden_state_shape[-1])
    inputs: Any = (observation, state, state.clone(), torch.zeros(2, dtype=torch.bool))
    if step.masked:
        inputs = (*inputs, torch.ones(2, mask_size(step.policy.action_space), dtype=torch.bool))
    batch = torch.export.Dim("batch")
    shapes = torch.utils._pytree.tree_map(lambda tensor: {1 if tensor.shape == state.shape else 0: batch}, inputs)
    with torch.no_grad():
        return torch.export.export(step, inputs, dynamic_shapes=shapes), list(step(*inputs))


def _stable_sort(x: Any, stable: bool = True, dim: int = -1, descending: bool = False) -> Any:
    """torch's stable sort in ONNX, where TopK puts the lowest index first among equal entries."""
    from onnxscript import opset20

    size: Any = opset20.Constant(value_ints=[int(x.shape[dim])])
    return opset20.TopK(x, size, axis=dim, largest=descending, sorted=True)


def _input_names(space: spaces.Space[Any]) -> list[str]:
    return [f"observation.{key}" for key in space.spaces] if isinstance(space, spaces.Dict) else ["observation"]


def _to_tensors(observations: Any) -> Any:
    if isinstance(observations, dict):
        return {key: torch.as_tensor(part) for key, part in observations.items()}
    return torch.as_tensor(observations)


def _player(step: Callable[..., dict[str, torch.Tensor]]) -> Player:
    def play(observations: Any, state: State, starts: np.ndarray, masks: Masks) -> dict[str, np.ndarray]:
        more = [] if masks is None else [torch.as_tensor(masks)]
        with torch.no_grad():
            result = step(_to_tensors(observations), *map(torch.as_tensor, state), torch.as_tensor(starts), *more)
        return {name: tensor.detach().numpy() for name, tensor in result.items()}

    return play
