"""PPO with a RIM memory, the whole algorithm in one file: plain torch and Gymnasium. Two minutes on one thread.

The task is CartPole without its velocities. From the position of the cart and the angle of the pole alone nobody can
tell which way the pole is falling, so the agent has to remember where it was a moment ago::

    observation -> encoder -> RIM -> actor   which way to push
                              ^ |-> critic   how much reward is still to come
                              state, carried from step to step, zero at the start of an episode

Any task with a vector observation and discrete actions works::

    python examples/ppo_rims_single_file.py
    python examples/ppo_rims_single_file.py --env-id Acrobot-v1 --visible 0 1 2 3
"""

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor, nn
from torch.distributions import Categorical

from rims_rl import RIM

State = tuple[Tensor, Tensor]  # h and c, each (layers, B, num_rims * rim_size)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--env-id", default="CartPole-v1", help="vector observation, discrete actions")
    add("--visible", type=int, nargs="*", default=[0, 2], help="entries of the observation to keep; none given: all")
    add("--seed", type=int, default=0, help="of weights, actions and environments")
    add("--total-steps", type=int, default=100_000, help="environment steps, over all environments")
    add("--num-envs", type=int, default=8, help="environments side by side")
    add("--num-steps", type=int, default=128, help="steps of each environment between two updates")
    add("--num-rims", type=int, default=6, help="RIMs")
    add("--num-active", type=int, default=4, help="RIMs that are updated at each step")
    add("--rim-size", type=int, default=16, help="units of one RIM")
    add("--lr", type=float, default=2e-3, help="learning rate of Adam at the beginning; falls to zero linearly")
    add("--gamma", type=float, default=0.99, help="discount")
    add("--gae-lambda", type=float, default=0.95, help="1: trust rewards only; 0: trust the critic after one step")
    add("--clip", type=float, default=0.2, help="how far an update may move the probability of an action, as a ratio")
    add("--epochs", type=int, default=4, help="passes over each rollout")
    add("--minibatches", type=int, default=2, help="parts of a pass; each has num_envs / minibatches whole sequences")
    add("--entropy-coef", type=float, default=0.01, help="weight of the entropy bonus")
    add("--value-coef", type=float, default=0.5, help="weight of the critic's loss")
    add("--max-grad-norm", type=float, default=0.5, help="longer gradients are shortened to this")
    args = parser.parse_args(argv)
    if args.num_envs % args.minibatches:
        parser.error(f"--num-envs must be a multiple of --minibatches={args.minibatches}, got {args.num_envs}")
    if args.total_steps < args.num_envs * args.num_steps:
        parser.error(f"--total-steps must be at least num_envs * num_steps = {args.num_envs * args.num_steps}")
    return args


def main(argv: list[str] | None = None) -> float:
    """Train, print how it goes, and return the mean return of the last episodes."""
    args = parse_arguments(argv)
    torch.set_num_threads(1)  # for tensors this small, a second thread costs more than it brings
    torch.manual_seed(args.seed)
    envs = make_envs(args)
    agent = Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n), args)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5)

    returns: deque[float] = deque(maxlen=50)  # of the last finished episodes
    rollouts = collect(envs, agent, args, returns)
    num_updates = args.total_steps // (args.num_envs * args.num_steps)
    started = time.perf_counter()
    for update in range(1, num_updates + 1):
        optimizer.param_groups[0]["lr"] = args.lr * (1 - (update - 1) / num_updates)
        rollout = next(rollouts)
        learn(agent, optimizer, rollout, args)
        if update % max(1, num_updates // 20) == 0 or update == num_updates:
            step = update * args.num_envs * args.num_steps
            speed = step / (time.perf_counter() - started)
            print(f"step {step:>9,}   mean return {mean(returns):7.1f}   {speed:6,.0f} steps/s", flush=True)
    envs.close()

    print(f"\nMean return of the last {len(returns)} episodes: {mean(returns):.1f}")
    print(f"How often each RIM was active ({args.num_active} of {args.num_rims} at each step), in the last rollout:")
    for k, share in enumerate(activity(agent, rollout)):
        print(f"  RIM {k}  {share:4.0%}  {'#' * round(40 * share)}")
    return mean(returns)


class Visible(gym.ObservationWrapper):
    """Shows only some entries of the observation."""

    def __init__(self, env: gym.Env, entries: list[int]) -> None:
        super().__init__(env)
        self.entries = entries
        space = env.observation_space
        self.observation_space = gym.spaces.Box(space.low[entries], space.high[entries], dtype=space.dtype)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[self.entries]


def make_envs(args: argparse.Namespace) -> VectorEnv:
    """Environments that start a new episode within the step that ends the old one.

    Gymnasium's default, NEXT_STEP, returns the last observation of an episode first and spends one more call on the
    reset. That call ignores the action and gives no reward: a sample that is not one, and would have to be masked out
    of every loss. With SAME_STEP each call is a real step. ``obs`` then already belongs to the new episode, and the
    last observation of the old one waits in ``infos["final_obs"]``.
    """
    wrappers = [lambda env: Visible(env, args.visible)] if args.visible else []
    return gym.make_vec(
        args.env_id,
        args.num_envs,
        vectorization_mode="sync",  # CartPole also has a vector form of its own, which takes no wrappers
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        wrappers=wrappers,
    )


class Agent(nn.Module):
    """Encoder, RIM, and two linear heads that read the same memory."""

    def __init__(self, num_inputs: int, num_actions: int, args: argparse.Namespace) -> None:
        super().__init__()
        hidden_size = args.num_rims * args.rim_size
        self.encoder = nn.Sequential(nn.Linear(num_inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        # Keys and values smaller than by default: this memory has little to say.
        sizes = {"input_key_size": 16, "comm_heads": 2, "comm_key_size": 8, "comm_value_size": 8}
        self.rim = RIM(64, hidden_size, args.num_rims, args.num_active, **sizes)
        self.actor = nn.Linear(hidden_size, num_actions)
        self.critic = nn.Linear(hidden_size, 1)
        nn.init.orthogonal_(self.actor.weight, 0.1)  # start with nearly equal probabilities, whatever the RIM says
        nn.init.zeros_(self.actor.bias)

    def forward(
        self, obs: Tensor, state: State | None = None, starts: Tensor | None = None
    ) -> tuple[Categorical, Tensor, State]:
        """From observations (T, B, num_inputs) to T * B choices and values (T, B), and the state after them.

        ``starts`` (T, B) is 1 where an episode begins. The RIM sets the state to zero there, so that one sequence may
        run over the border of two episodes.
        """
        memory, state = self.rim(self.encoder(obs), state, starts)  # (T, B, 64) -> (T, B, hidden_size)
        return Categorical(logits=self.actor(memory)), self.critic(memory).squeeze(-1), state


class Rollout(NamedTuple):
    """T = num_steps steps of B = num_envs environments."""

    obs: Tensor  # (T, B, num_inputs)
    starts: Tensor  # (T, B), 1 where obs is the first of an episode
    actions: Tensor  # (T, B)
    log_probs: Tensor  # (T, B), of these actions when they were taken
    advantages: Tensor  # (T, B)
    targets: Tensor  # (T, B), what the critic should have said
    state: State  # before the first step


@torch.no_grad()  # ends at each yield
def collect(envs: VectorEnv, agent: Agent, args: argparse.Namespace, returns: deque[float]) -> Iterator[Rollout]:
    """Play for ever, one rollout at a time. Episodes and the agent's memory go on from one rollout to the next."""
    obs = torch.as_tensor(envs.reset(seed=args.seed)[0], dtype=torch.float32)  # (B, num_inputs)
    starts = torch.ones(args.num_envs)
    state = None  # zeros; the first start would set it to zero anyway
    running_returns = np.zeros(args.num_envs)
    while True:
        first_state, steps = state, []
        for _ in range(args.num_steps):
            policy, value, state = agent(obs[None], state, starts[None])  # one step is a sequence with T = 1
            action = policy.sample()  # (1, B)
            next_obs, reward, terminated, truncated, infos = envs.step(action[0].numpy())
            done = terminated | truncated

            # What is still to come after an episode ends: nothing if the task ended it, but if only the clock ran out,
            # the critic's guess for the observation that would have been acted on next, with the memory of this step.
            value_at_end = torch.zeros(args.num_envs)
            cut = np.flatnonzero(truncated & ~terminated)
            if cut.size:
                final_obs = torch.as_tensor(np.stack(infos["final_obs"][cut]), dtype=torch.float32)
                _, final_value, _ = agent(final_obs[None], (state[0][:, cut], state[1][:, cut]))
                value_at_end[cut] = final_value[0]

            # Times 1 - gamma, a value is a weighted mean of rewards, not a sum of about 1 / (1 - gamma) of them. Both
            # heads share the memory, and this keeps the critic's loss near the size of the actor's.
            reward_now = (1 - args.gamma) * torch.as_tensor(reward, dtype=torch.float32)
            done_now = torch.as_tensor(done)
            log_prob = policy.log_prob(action)
            steps.append((obs, starts, action[0], log_prob[0], value[0], reward_now, done_now, value_at_end))
            obs, starts = torch.as_tensor(next_obs, dtype=torch.float32), done_now.float()

            running_returns += reward
            returns.extend(running_returns[done].tolist())
            running_returns[done] = 0

        all_obs, all_starts, actions, log_probs, values, rewards, dones, values_at_end = map(
            torch.stack, zip(*steps, strict=True)
        )
        _, value_after, _ = agent(obs[None], state, starts[None])  # the state stays: this step is played next time
        next_values = torch.where(dones, values_at_end, torch.cat([values[1:], value_after]))
        advantages = estimate_advantages(values, next_values, rewards, dones, args)
        if first_state is None:
            first_state = (torch.zeros_like(state[0]), torch.zeros_like(state[1]))
        yield Rollout(all_obs, all_starts, actions, log_probs, advantages, advantages + values, first_state)


def estimate_advantages(
    values: Tensor, next_values: Tensor, rewards: Tensor, dones: Tensor, args: argparse.Namespace
) -> Tensor:
    """Generalised advantage estimation: how much better things went than the critic said, all (T, B).

    The one-step surprises delta_t = r_t + gamma V_{t+1} - V_t are summed up to the end of the episode, the one that
    comes k steps later with the weight (gamma lambda)^k.
    """
    surprises = rewards + args.gamma * next_values - values
    advantages = torch.empty_like(surprises)
    later = torch.zeros(surprises.shape[1])
    for t in reversed(range(len(surprises))):
        later = surprises[t] + args.gamma * args.gae_lambda * torch.where(dones[t], 0, later)
        advantages[t] = later
    return advantages


def learn(agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout, args: argparse.Namespace) -> None:
    """PPO's update. Time stays whole: a minibatch is some of the environments with all of their steps.

    The RIM runs over each sequence again, from the state the rollout began with, so gradients reach back through
    memory for up to num_steps steps. (That state came from slightly older weights from the second minibatch on. Playing
    everything since the start of the episode again would cost far more than this error does.)
    """
    h, c = rollout.state
    advantages = (rollout.advantages - rollout.advantages.mean()) / (rollout.advantages.std() + 1e-8)
    for _ in range(args.epochs):
        for rows in torch.randperm(args.num_envs).chunk(args.minibatches):  # (num_envs / minibatches,)
            policy, values, _ = agent(rollout.obs[:, rows], (h[:, rows], c[:, rows]), rollout.starts[:, rows])

            # The gain of moving an action's probability counts only up to the clip: beyond it the gradient is zero,
            # unless the move was in the wrong direction.
            ratio = (policy.log_prob(rollout.actions[:, rows]) - rollout.log_probs[:, rows]).exp()
            clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
            gain = torch.min(ratio * advantages[:, rows], clipped * advantages[:, rows]).mean()
            value_loss = F.mse_loss(values, rollout.targets[:, rows])
            loss = -gain + args.value_coef * value_loss - args.entropy_coef * policy.entropy().mean()

            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
            optimizer.step()


@torch.no_grad()
def activity(agent: Agent, rollout: Rollout) -> list[float]:
    """The share of steps at which each RIM is active, over all environments of a rollout."""
    with agent.rim.trace() as trace:
        agent(rollout.obs, rollout.state, rollout.starts)
    return trace.active.float().mean((0, 1)).tolist()  # (T, B, num_rims) -> (num_rims,)


def mean(returns: deque[float]) -> float:
    return sum(returns) / len(returns) if returns else float("nan")  # nan: no episode has ended yet


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
