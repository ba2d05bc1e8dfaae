"""PPO with an LSTM as one would write it in a single file, in plain torch: what a user might take instead of a library.

Ours, in the manner of CleanRL's recurrent agent for Atari: the LSTM is called once per step, in the update too, and a
minibatch is whole sequences of some environments.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn
from torch.distributions import Categorical

State = tuple[Tensor, Tensor]


class PlainAgent(nn.Module):
    """Of frames as Stable-Baselines3 stacks them, `(envs, height, width, frames)`."""

    def __init__(
        self, env: VecEnv, hidden_size: int, n_steps: int, n_epochs: int, batch_size: int, learning_rate: float = 2.5e-4
    ) -> None:
        super().__init__()
        actions = env.action_space.n  # type: ignore[attr-defined]
        self.env, self.n_steps, self.n_epochs = env, n_steps, n_epochs
        self.envs_at_once = max(1, batch_size // n_steps)
        self.encoder = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(),
        )  # fmt: skip
        self.lstm = nn.LSTM(512, hidden_size)
        self.actor, self.critic = nn.Linear(hidden_size, actions), nn.Linear(hidden_size, 1)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=learning_rate, eps=1e-5)
        nothing = torch.zeros(1, env.num_envs, hidden_size)
        self.state: State = (nothing, nothing)
        self.done = torch.zeros(env.num_envs)
        self.obs = self._images(env.reset())

    def rollout(self) -> None:
        """Play ``n_steps``, and keep what the update wants."""
        kept: list[tuple[Tensor, ...]] = []
        self.first = self.state
        for _ in range(self.n_steps):
            with torch.no_grad():
                memory, self.state = self._remember(self.obs, self.state, self.done)
                policy, value = Categorical(logits=self.actor(memory)), self.critic(memory).flatten()
                action = policy.sample()
                log_prob = policy.log_prob(action)
            obs, reward, done, _ = self.env.step(action.numpy())
            kept.append((self.obs, self.done, action, log_prob, value, torch.as_tensor(reward)))
            self.obs, self.done = self._images(obs), torch.as_tensor(np.asarray(done, np.float32))
        with torch.no_grad():
            last = self.critic(self._remember(self.obs, self.state, self.done)[0]).flatten()
        self.kept = [torch.stack(of_steps) for of_steps in zip(*kept, strict=True)]
        self.advantages = self._advantages(last)

    def update(self) -> None:
        n_envs = self.env.num_envs
        for _ in range(self.n_epochs):
            for envs in torch.randperm(n_envs).split(self.envs_at_once):
                obs, done, action, log_prob, value, _ = (x[:, envs].flatten(0, 1) for x in self.kept)
                advantage = self.advantages[:, envs].flatten()
                state = (self.first[0][:, envs], self.first[1][:, envs])
                memory, _ = self._remember(obs, state, done)
                policy, guess = Categorical(logits=self.actor(memory)), self.critic(memory).flatten()
                ratio = torch.exp(policy.log_prob(action) - log_prob)
                returns, scaled = advantage + value, (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                gain = torch.min(scaled * ratio, scaled * ratio.clamp(0.9, 1.1)).mean()
                loss = -gain + 0.5 * F.mse_loss(guess, returns) - 0.01 * policy.entropy().mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters(), 0.5)
                self.optimizer.step()

    def _remember(self, obs: Tensor, state: State, done: Tensor) -> tuple[Tensor, State]:
        """What the LSTM makes of steps, those of all environments one after the other."""
        size = state[0].shape[1]
        features, starts, outputs = self.encoder(obs / 255).split(size), done.split(size), []
        for x, start in zip(features, starts, strict=True):
            keep = (1 - start).view(1, -1, 1)
            output, state = self.lstm(x.unsqueeze(0), (state[0] * keep, state[1] * keep))
            outputs.append(output)
        return torch.cat(outputs).flatten(0, 1), state

    def _advantages(self, next_value: Tensor, gamma: float = 0.99, decay: float = 0.95) -> Tensor:
        _, done, _, _, value, reward = self.kept
        alive, total, advantages = 1 - self.done, torch.zeros_like(next_value), torch.empty_like(value)
        for t in reversed(range(self.n_steps)):
            total = reward[t] + gamma * next_value * alive - value[t] + gamma * decay * alive * total
            advantages[t], next_value, alive = total, value[t], 1 - done[t]
        return advantages

    @staticmethod
    def _images(obs: object) -> Tensor:
        return torch.as_tensor(np.asarray(obs)).permute(0, 3, 1, 2)
