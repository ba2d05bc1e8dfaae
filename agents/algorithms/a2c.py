"""A2C for recurrent policies, which Stable-Baselines3's A2C does not take."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from gymnasium import spaces
from stable_baselines3.common.utils import explained_variance

from rims_rl.agents.algorithms.activity import Activity
from rims_rl.agents.algorithms.ppo import RecurrentPPO, allowed_in


class RecurrentA2C(RecurrentPPO):
    """Advantage actor-critic with the arguments and defaults of ``stable_baselines3.A2C``, for recurrent policies.

    Args:
        policy, env, kwargs: of ``stable_baselines3.A2C``, and ``sequence_length`` of :class:`RecurrentPPO`: the whole
            rollout is one batch, and by default each environment's rollout one sequence.
        rms_prop_eps: epsilon of RMSprop.
        use_rms_prop: RMSprop as in the original A2C, or else Adam.
    """

    def __init__(
        self,
        policy: Any,
        env: Any,
        learning_rate: Any = 7e-4,
        n_steps: int = 5,
        *,
        gae_lambda: float = 1.0,
        rms_prop_eps: float = 1e-5,
        use_rms_prop: bool = True,
        normalize_advantage: bool = False,
        _init_setup_model: bool = True,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("replay_active"):
            raise ValueError("replay_active must be False, got True: A2C updates once, with the weights of the rollout")
        super().__init__(
            policy, env, learning_rate, n_steps, None, 1, gae_lambda=gae_lambda,
            normalize_advantage=normalize_advantage, _init_setup_model=False, **kwargs,
        )  # fmt: skip
        self.use_rms_prop, self.rms_prop_eps = use_rms_prop, rms_prop_eps
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        # policy_kwargs stay as they were given: load() compares those in the file with the user's
        given = self.policy_kwargs
        if self.use_rms_prop and "optimizer_class" not in given:
            rms_prop = {"alpha": 0.99, "eps": self.rms_prop_eps, "weight_decay": 0}
            self.policy_kwargs = {**given, "optimizer_class": torch.optim.RMSprop, "optimizer_kwargs": rms_prop}
        super()._setup_model()
        self.policy_kwargs = given

    def _activity(self) -> Activity:
        return Activity([])  # nobody changes between the rollout and its only update

    def train(self) -> None:
        """One gradient step on the whole rollout."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        data: Any
        (data,) = self.rollout_buffer.get(None)
        actions = data.actions.long().flatten() if isinstance(self.action_space, spaces.Discrete) else data.actions
        policy: Any = self.policy
        with allowed_in(data, policy):
            values, log_prob, entropy = policy.evaluate_actions(
                data.observations, actions, data.lstm_states, data.episode_starts
            )
        advantages = data.advantages
        if self.normalize_advantage:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy_loss = -(advantages * log_prob).mean()
        value_loss = F.mse_loss(data.returns, values.flatten())
        entropy_loss = log_prob.mean() if entropy is None else -entropy.mean()  # -log_prob estimates the entropy
        loss = policy_loss + self.ent_coef * entropy_loss + self.vf_coef * value_loss
        self.policy.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        self.policy.optimizer.step()

        self._n_updates += 1
        variance = explained_variance(self.rollout_buffer.values.flatten(), self.rollout_buffer.returns.flatten())
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/explained_variance", variance)
        self.logger.record("train/entropy_loss", entropy_loss.item())
        self.logger.record("train/policy_loss", policy_loss.item())
        self.logger.record("train/value_loss", value_loss.item())
        if hasattr(self.policy, "log_std"):
            self.logger.record("train/std", torch.exp(self.policy.log_std).mean().item())

    def learn(  # type: ignore[override]
        self, total_timesteps: int, callback: Any = None, log_interval: int = 100, **kwargs: Any
    ) -> Any:
        return super().learn(total_timesteps, callback, log_interval, **{"tb_log_name": "RecurrentA2C", **kwargs})
