"""One step of a policy as a pure function of tensors: what every export holds."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from torch import Tensor, nn

from rims_rl.agents.policies.rims_policies import MlpRimsPolicy, mask_logits
from rims_rl.agents.saved.description import Normalization
from rims_rl.core import RIM, Core, State


class PolicyStep(nn.Module):
    """From observations as the environment gives them, and the state, to actions and the new state.

    Args:
        policy: of this step.
        observation_space: of the environment; images may have their channels last.
        normalization: statistics of observations.

    Inputs: observation, h, c, episode_start, action_masks
        - **observation**: a batch of observations, or for a Dict space a dictionary of batches.
        - **h**, **c** of shape `(layers, B, hidden_size)`: the state. A separate critic's layers follow the actor's.
        - **episode_start** of shape `(B,)`, bool: where the state is the initial one before the step.
        - **action_masks** of shape `(B, actions)`, bool, only where the environment has them: what is possible.

    Outputs: a dictionary of batches
        - **action**: the most likely action, inside the bounds of a Box.
        - **logits**: of Discrete and MultiDiscrete actions log-probabilities. For a Box **action_mean** and
          **action_log_std** instead.
        - **value**: what the critic expects.
        - **next_h**, **next_c**: the new state.
        - **active** `(B, num_rims)`, bool: who was updated in the actor's last layer; only if the core has RIMs.
    """

    def __init__(
        self,
        policy: MlpRimsPolicy,
        observation_space: spaces.Space[Any],
        normalization: Normalization | None = None,
    ) -> None:
        super().__init__()
        policy.precision = "float32"  # of whatever is exported, which other machines run
        self.policy, self.masked = policy, False
        self.layers: int = policy.num_layers * (1 if policy.lstm_critic is None else 2)
        inner = _by_key(policy.observation_space)
        self._prepare = nn.ModuleDict(
            {
                # "keys" is no name for a module
                f"_{key}": _Prepare(space.shape != inner[key].shape, normalization, key)
                for key, space in _by_key(observation_space).items()
            }
        )

    def prepare(self, observation: Any) -> Any:
        """Observations of the environment as the policy has seen them in training."""
        if isinstance(observation, dict):
            return {key: self._prepare[f"_{key}"](part) for key, part in observation.items()}
        return self._prepare["_"](observation)

    def forward(
        self, observation: Any, h: Tensor, c: Tensor, episode_start: Tensor, action_masks: Tensor | None = None
    ) -> dict[str, Tensor]:
        policy, layers = self.policy, self.policy.num_layers
        observation = self.prepare(observation)
        found: list[Tensor] = []  # who was active, in each core

        def one_step(core: Core, features: Tensor, state: State, starts: Tensor) -> tuple[Tensor, State]:
            state = core.begin(state, starts)
            if not isinstance(core, RIM):
                output, state = core(features.unsqueeze(0), state)
                return output[0], state
            step = core.step(features, state)
            found.append(step.active)
            return step.h[-1, :, : core.output_size], (step.h, step.c)

        states = RNNStates((h[:layers], c[:layers]), (h[layers:], c[layers:]))
        actor, critic, states = policy.run_cores(observation, states, episode_start, one_step)
        output = policy.action_net(policy.actor_head(actor))
        result = self._act(output if action_masks is None else mask_logits(output, action_masks))
        result["value"] = policy.critic_head(critic).flatten()
        h, c = states.pi
        if policy.lstm_critic is not None:
            h, c = (torch.cat(parts) for parts in zip(states.pi, states.vf, strict=True))
        result |= {"next_h": h, "next_c": c}
        if found:
            result["active"] = found[0]
        return result

    def _act(self, output: Tensor) -> dict[str, Tensor]:
        """The most likely action, and the distribution it is from."""
        space = self.policy.action_space
        if isinstance(space, spaces.Box):
            low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
            log_std = self.policy.log_std.expand_as(output)
            return {"action": output.clamp(low, high), "action_mean": output, "action_log_std": log_std}
        if isinstance(space, spaces.MultiBinary):
            return {"action": (output > 0).to(torch.int8), "logits": output}
        if isinstance(space, spaces.MultiDiscrete):
            parts = [part.log_softmax(-1) for part in output.split(space.nvec.tolist(), -1)]
            return {"action": torch.stack([part.argmax(-1) for part in parts], -1), "logits": torch.cat(parts, -1)}
        assert isinstance(space, spaces.Discrete)
        logits = output.log_softmax(-1)
        return {"action": logits.argmax(-1) + int(space.start), "logits": logits}


class _Prepare(nn.Module):
    """What vectorized environments do in Stable-Baselines3: normalize, then put channels first."""

    mean: Tensor
    std: Tensor

    def __init__(self, channels_last: bool, normalization: Normalization | None, key: str) -> None:
        super().__init__()
        self.channels_last = channels_last
        self.normalized = normalization is not None and key in normalization.observations
        if normalization is not None and self.normalized:  # in double precision, as VecNormalize has it
            statistics, self.clip = normalization.observations[key], normalization.clip
            self.register_buffer("mean", torch.tensor(statistics.mean, dtype=torch.float64))
            var = torch.tensor(statistics.var, dtype=torch.float64)
            self.register_buffer("std", torch.sqrt(var + normalization.epsilon))

    def forward(self, x: Tensor) -> Tensor:
        if self.normalized:
            x = ((x.double() - self.mean) / self.std).clamp(-self.clip, self.clip).float()
        return x.permute(0, 3, 1, 2) if self.channels_last else x


def _by_key(space: spaces.Space[Any]) -> dict[str, spaces.Space[Any]]:
    return dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
