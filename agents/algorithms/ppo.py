"""Recurrent PPO: sb3-contrib's algorithm, with minibatches of whole sequences instead of padded pieces."""

from __future__ import annotations

import copy
import math
import warnings
from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np
import sb3_contrib
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.utils import explained_variance, obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from rims_rl.agents.algorithms.activity import Activity, Watched, flips
from rims_rl.agents.algorithms.buffers import SequenceSamples, buffer_class
from rims_rl.agents.algorithms.threads import few_threads
from rims_rl.agents.policies.action_masks import has_masks, masks_of
from rims_rl.agents.policies.rims_policies import CnnRimsPolicy, MlpRimsPolicy, MultiInputRimsPolicy
from rims_rl.common.spaces import check_spaces
from rims_rl.core import weights_at_rest


class RecurrentPPO(sb3_contrib.RecurrentPPO):
    """sb3-contrib's RecurrentPPO, made fast. Same arguments, same saved format, and four arguments more.

    Args:
        args, kwargs: of ``sb3_contrib.RecurrentPPO``. ``policy`` may also be ``"MlpRimsPolicy"``,
            ``"CnnRimsPolicy"`` or ``"MultiInputRimsPolicy"``.
        sequence_length: the rollout is cut into sequences of so many steps; each starts from the state that the core
            had there when the data was collected, and gradients stay inside it. It divides ``n_steps``. Default: see
            :func:`choose_length`; a warning says so if it is less than ``n_steps`` and ``batch_size`` promise.
        replay_active: in the update those RIMs are active that were so in the rollout, whoever would win the
            competition with the new weights (as in the routing replay of arXiv:2510.11370, for experts).
        rollout_buffer_class: another class than those of ``buffers``; it gets sb3-contrib's arguments.
        rollout_buffer_kwargs: more arguments for it.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        **sb3_contrib.RecurrentPPO.policy_aliases,
        "MlpRimsPolicy": MlpRimsPolicy,
        "CnnRimsPolicy": CnnRimsPolicy,
        "MultiInputRimsPolicy": MultiInputRimsPolicy,
    }

    def __init__(
        self,
        *args: Any,
        sequence_length: int | None = None,
        replay_active: bool = False,
        rollout_buffer_class: type | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        _init_setup_model: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs["_init_setup_model"] = False  # not before the attributes below are there
        super().__init__(*args, **kwargs)
        self.sequence_length, self.replay_active = sequence_length, replay_active
        self.rollout_buffer_class = rollout_buffer_class
        self.rollout_buffer_kwargs = rollout_buffer_kwargs or {}
        if _init_setup_model:
            self._setup_model()

    @staticmethod
    def _wrap_env(env: Any, *args: Any, **kwargs: Any) -> VecEnv:
        check_spaces(env.observation_space, env.action_space)
        return BaseAlgorithm._wrap_env(env, *args, **kwargs)

    def _setup_model(self) -> None:
        super()._setup_model()
        core: Any = self.policy.lstm_actor
        make: Any = self.rollout_buffer_class
        kwargs = dict(self.rollout_buffer_kwargs)
        if make is None:
            make = buffer_class(self.observation_space)
            kwargs["sequence_length"] = self._find_sequence_length()
        elif self.replay_active:
            raise ValueError("replay_active needs our own rollout buffer, got another rollout_buffer_class")
        self.rollout_buffer = make(
            self.n_steps,
            self.observation_space,
            self.action_space,
            (self.n_steps, core.num_layers, self.n_envs, core.hidden_size),
            self.device,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            n_envs=self.n_envs,
            **kwargs,
        )

    def _find_sequence_length(self) -> int:
        """The length asked for, or a good one; a ValueError if it cannot be, and a warning if minibatches or gradients
        are not what ``n_steps`` and ``batch_size`` promise."""
        n_steps, rollout, length = self.n_steps, self.n_steps * self.n_envs, self.sequence_length
        batch = min(self.batch_size or rollout, rollout)
        if length is not None and (length < 1 or n_steps % length or length > batch):
            raise ValueError(
                f"sequence_length must divide n_steps={n_steps} and be at most batch_size={batch}, got {length}; "
                f"{choose_length(n_steps, batch)} would do"
            )
        chosen = length or choose_length(n_steps, batch)
        minibatch = max(1, batch // chosen) * chosen
        changes = []
        if length is None and chosen < min(n_steps, batch):
            changes.append(
                f"gradients go back {chosen} steps at most, because rollouts are cut into sequences of so many"
            )
        if minibatch != batch:
            changes.append(f"minibatches have {minibatch} steps, which are whole sequences of {chosen}")
        if rest := rollout % minibatch:
            changes.append(f"the last minibatch has {rest} steps")
        smallest = rest or min(minibatch, rollout)
        if smallest < 2 and self.normalize_advantage:  # the standard deviation of one number is NaN
            raise ValueError(
                f"normalize_advantage needs minibatches of at least two steps, got n_steps * n_envs = {rollout} and "
                f"batch_size={batch}, minibatches of {minibatch} and {smallest}; change one of them"
            )
        if changes:
            warnings.warn(
                f"n_steps={n_steps} with n_envs={self.n_envs} and batch_size={batch}: {'; '.join(changes)}. A "
                f"batch_size that is a multiple of {n_steps}, or divides it, avoids this",
                stacklevel=2,
            )
        return chosen

    def collect_rollouts(self, *args: Any, **kwargs: Any) -> bool:
        with few_threads(self.policy, self.n_envs), weights_at_rest(self.policy), self._activity().watched() as watched:
            return self._collect_rollouts(watched, *args, **kwargs)

    def _collect_rollouts(
        self,
        watched: Watched,
        env: VecEnv,
        callback: BaseCallback,
        rollout_buffer: RolloutBuffer,
        n_rollout_steps: int,
    ) -> bool:
        """As in sb3-contrib, with the same names for callbacks to look at. But the values of observations at which
        episodes were cut off are computed together at the end, not each by itself as it comes."""
        policy: Any = self.policy
        buffer: Any = rollout_buffer
        policy.set_training_mode(False)
        buffer.reset()
        if self.use_sde:
            policy.reset_noise(env.num_envs)
        callback.on_rollout_start()
        lstm_states: Any = self._last_lstm_states
        masks, masked = None, self._uses_masks(env)
        new_obs: Any
        cut_off: list[tuple[int, np.signedinteger, Any, Any]] = []  # step, environment, observation and state
        for n_steps in range(n_rollout_steps):
            if self.use_sde and self.sde_sample_freq > 0 and n_steps % self.sde_sample_freq == 0:
                policy.reset_noise(env.num_envs)
            with torch.no_grad():
                assert self._last_obs is not None
                obs_tensor = obs_as_tensor(self._last_obs, self.device)
                episode_starts = torch.tensor(self._last_episode_starts, dtype=torch.float32, device=self.device)
                watched.forget()
                masks = masks_of(env) if masked else None
                with policy.allowing(masks) if masked else nullcontext():
                    actions, values, log_probs, lstm_states = policy(obs_tensor, lstm_states, episode_starts)
                active = watched.active()
            actions = clipped_actions = actions.cpu().numpy()
            if isinstance(self.action_space, spaces.Box):
                clipped_actions = np.clip(actions, self.action_space.low, self.action_space.high)
            new_obs, rewards, dones, infos = env.step(clipped_actions)
            self.num_timesteps += env.num_envs
            callback.update_locals(locals())
            if not callback.on_step():
                return False
            self._update_info_buffer(infos, dones)
            for index in np.flatnonzero(dones):
                last = infos[index].get("terminal_observation")
                if last is not None and infos[index].get("TimeLimit.truncated", False):
                    state = [part[:, index] for part in lstm_states.vf]
                    cut_off.append((n_steps, index, copy.deepcopy(last), state))  # its array may be used again
            if isinstance(self.action_space, spaces.Discrete):
                actions = actions.reshape(-1, 1)
            starts, before = self._last_episode_starts, self._last_lstm_states
            more = {"active": active, "action_masks": masks}
            more = {name: value for name, value in more.items() if value is not None}
            buffer.add(self._last_obs, actions, rewards, starts, values, log_probs, lstm_states=before, **more)
            self._last_obs, self._last_episode_starts, self._last_lstm_states = new_obs, dones, lstm_states
        with torch.no_grad():
            if cut_off:
                self._add_values(buffer.rewards, cut_off)
            episode_starts = torch.tensor(dones, dtype=torch.float32, device=self.device)
            values = policy.predict_values(obs_as_tensor(new_obs, self.device), lstm_states.vf, episode_starts)
        buffer.compute_returns_and_advantage(last_values=values, dones=dones)
        callback.on_rollout_end()
        return True

    def _add_values(self, rewards: np.ndarray, cut_off: list[tuple[int, np.signedinteger, Any, Any]]) -> None:
        """Add to the last reward of episodes that were cut off what could have come after it."""
        policy: Any = self.policy
        steps, envs, observations, states = zip(*cut_off, strict=True)
        first: Any = observations[0]
        if isinstance(first, dict):
            stacked: Any = {key: np.stack([observation[key] for observation in observations]) for key in first}
        else:
            stacked = np.stack(observations)
        state = tuple(torch.stack(part, 1) for part in zip(*states, strict=True))
        going_on = torch.zeros(len(steps), device=self.device)
        values = policy.predict_values(policy.obs_to_tensor(stacked)[0], state, going_on)
        rewards[steps, envs] += self.gamma * values.flatten().cpu().numpy()

    def _uses_masks(self, env: VecEnv) -> bool:
        """Whether the environments say which actions are possible, and the policy can listen."""
        if not isinstance(self.policy, MlpRimsPolicy) or not has_masks(env):
            return False
        if self.rollout_buffer_class is not None:
            raise ValueError("action_masks() needs our own rollout buffer, got another rollout_buffer_class")
        return True

    def _activity(self) -> Activity:
        """Of the cores, if the buffer can keep it."""
        policy: Any = self.policy
        ours = self.rollout_buffer_class is None and isinstance(policy, MlpRimsPolicy)
        return Activity([policy.lstm_actor, policy.lstm_critic] if ours else [])

    def train(self) -> None:
        """The update of sb3-contrib's PPO. Besides, it logs ``train/first_ratio``, how far the first minibatch's ratios
        are from 1 at most, and ``rims/mask_flips``, at what share of steps other RIMs are active than in the rollout,
        also for each epoch."""
        policy: Any = self.policy
        policy.set_training_mode(True)
        self._update_learning_rate(policy.optimizer)
        activity, parameters = self._activity(), list(policy.parameters())
        logged: defaultdict[str, list[float]] = defaultdict(list)
        stopped = False
        for epoch in range(1, self.n_epochs + 1):
            logged["train/approx_kl"].clear()  # as in sb3-contrib: of the last epoch
            for data in self.rollout_buffer.get(self.batch_size):
                loss, kl = self._loss(data, epoch, activity, logged)
                logged["train/approx_kl"].append(kl)
                if self.target_kl is not None and kl > 1.5 * self.target_kl:
                    stopped = True
                    if self.verbose:
                        print(f"epoch {epoch} is the last: the divergence is {kl:.2f}, and target_kl {self.target_kl}")
                    break
                policy.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
                policy.optimizer.step()
            self._n_updates += 1
            if stopped:
                break
        self._log_update(logged)

    def _loss(
        self, data: Any, epoch: int, activity: Activity, logged: defaultdict[str, list[float]]
    ) -> tuple[Tensor, float]:
        """Of a minibatch: the loss, and about how far the policy has moved away from the one that collected it."""
        policy: Any = self.policy
        mask: Any = ... if isinstance(data, SequenceSamples) else data.mask > 1e-8  # padding, which ours has none of
        actions = data.actions.long().flatten() if isinstance(self.action_space, spaces.Discrete) else data.actions
        arguments = data.observations, actions, data.lstm_states, data.episode_starts
        if activity and self.replay_active:
            with activity.replayed(data.active), allowed_in(data, policy):
                values, log_prob, entropy = policy.evaluate_actions(*arguments)
        else:
            with activity.watched() as watched, allowed_in(data, policy):
                values, log_prob, entropy = policy.evaluate_actions(*arguments)
            if (active := watched.active()) is not None:
                logged[f"rims/mask_flips_epoch_{epoch}"].append(flips(data.active, active))
        advantages, values = data.advantages, values.flatten()
        if self.normalize_advantage:
            advantages = (advantages - advantages[mask].mean()) / (advantages[mask].std() + 1e-8)
        clip, clip_vf = self._clip_ranges()
        log_ratio = log_prob - data.old_log_prob
        ratio = torch.exp(log_ratio)
        clipped = torch.clamp(ratio, 1 - clip, 1 + clip)
        policy_loss = -torch.min(advantages * ratio, advantages * clipped)[mask].mean()
        if clip_vf is not None:
            values = data.old_values + torch.clamp(values - data.old_values, -clip_vf, clip_vf)
        value_loss = ((data.returns - values) ** 2)[mask].mean()
        entropy_loss = -(-log_prob if entropy is None else entropy)[mask].mean()  # -log_prob estimates the entropy
        loss = policy_loss + self.ent_coef * entropy_loss + self.vf_coef * value_loss
        with torch.no_grad():
            numbers = {
                "train/policy_gradient_loss": policy_loss,
                "train/value_loss": value_loss,
                "train/entropy_loss": entropy_loss,
                "train/loss": loss,
                "train/clip_fraction": ((ratio - 1).abs() > clip).float()[mask].mean(),
                "train/first_ratio": (ratio[mask] - 1).abs().max(),
                "kl": ((ratio - 1) - log_ratio)[mask].mean(),
            }
            found = dict(zip(numbers, torch.stack([*numbers.values()]).tolist(), strict=True))
        kl = found.pop("kl")
        for name, number in found.items():
            logged[name].append(number)
        return loss, kl

    def _clip_ranges(self) -> tuple[float, float | None]:
        """Of ratios and of values, at this point of training."""
        of_values: Any = self.clip_range_vf
        clip: Any = self.clip_range
        now = self._current_progress_remaining
        return clip(now), None if of_values is None else of_values(now)

    def _log_update(self, logged: dict[str, list[float]]) -> None:
        for name, numbers in logged.items():
            one = {"train/loss": numbers[-1], "train/first_ratio": numbers[0]}
            self.logger.record(name, one.get(name, np.mean(numbers)))
        if all_flips := [number for name in logged if name.startswith("rims/") for number in logged[name]]:
            self.logger.record("rims/mask_flips", np.mean(all_flips))
        buffer, (clip, clip_vf) = self.rollout_buffer, self._clip_ranges()
        self.logger.record(
            "train/explained_variance", explained_variance(buffer.values.ravel(), buffer.returns.ravel())
        )
        if hasattr(self.policy, "log_std"):
            self.logger.record("train/std", torch.exp(self.policy.log_std).mean().item())
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/clip_range", clip)
        if clip_vf is not None:
            self.logger.record("train/clip_range_vf", clip_vf)

    def learn(self, total_timesteps: int, callback: MaybeCallback = None, *args: Any, **kwargs: Any) -> Any:
        if self.verbose:
            print(describe_parameters(self.policy))
        return super().learn(total_timesteps, callback, *args, **kwargs)

    @classmethod
    def load(cls, path: Any, *args: Any, **kwargs: Any) -> Any:
        """As in Stable-Baselines3. The file is a pickle: load only files that you trust."""
        try:
            return super().load(path, *args, **kwargs)
        except (ImportError, AttributeError, KeyError) as error:
            raise ValueError(
                f"{path} cannot be loaded: it needs something that is not there any more ({error}); install or restore "
                'it, or pass custom_objects={"policy_class": ...}'
            ) from error


def allowed_in(data: Any, policy: Any) -> AbstractContextManager[None]:
    """With the masks of a minibatch, if it has some."""
    masks = getattr(data, "action_masks", None)
    return nullcontext() if masks is None else policy.allowing(masks)


def choose_length(n_steps: int, batch_size: int) -> int:
    """How long the sequences are into which a rollout is cut: all equal, so a divisor of ``n_steps``."""
    longest = min(n_steps, batch_size)
    both = math.gcd(n_steps, batch_size)
    if 4 * both >= longest:
        return both  # minibatches have the size that was asked for
    # Else that would cost too much memory of the past: rather a minibatch that is smaller, or of one long sequence.
    divisors = [length for length in range(1, n_steps + 1) if n_steps % length == 0]
    inside = max(length for length in divisors if length <= longest)
    return inside if 4 * inside >= longest else min(length for length in divisors if length > longest)


def describe_parameters(policy: BasePolicy) -> str:
    """One line: how many parameters there are, and where."""
    total = sum(parameter.numel() for parameter in policy.parameters())
    text = f"{type(policy).__name__}: {total:,} parameters"
    if isinstance(policy, MlpRimsPolicy):
        parts = ", ".join(f"{part} {count:,}" for part, count in policy.parameter_counts().items())
        text += f" ({parts}; core {policy.core_name!r}, critic {policy.critic_kind!r})"
    return text
