"""Imitation as a supervised task: data are what was seen of an expert, and tests are episodes."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from rims_rl.common.errors import UserError
from rims_rl.config.fields import Count, NotNegative
from rims_rl.envs.mujoco.perturbed_joints import perturbed
from rims_rl.envs.names import Resolved, resolve
from rims_rl.envs.pictures import Pictured, is_drawn_by_mujoco
from rims_rl.imitation.aggregation import Aggregation
from rims_rl.imitation.network import Actions, ImitationNetwork, Learner, PictureEncoder
from rims_rl.imitation.playing import Played, play
from rims_rl.imitation.trajectories import (
    COPIES,
    About,
    Trajectories,
    Watching,
    cache_folder,
    key_of,
    read_trajectories,
)
from rims_rl.supervised.task import TRAINING, Task, TaskConfig, Tests

TEST_SEED = 1_000_000  # far from those of trajectories, which count from 0
CLEAN = "unperturbed"
SMALLEST = 46  # pixels that the encoder's four convolutions need


class ImitationConfig(TaskConfig):
    """Settings of an imitation. ``zoo_configs/imitation.yml`` gives all but the first three."""

    env: str
    env_options: dict[str, Any]
    expert: dict[str, Any]  # its name and fingerprint

    episodes: Count  # of the expert
    trajectory_seed: Annotated[int, Field(ge=0, lt=TEST_SEED)]
    expert_noise: Annotated[float, Field(ge=0, lt=1)]  # in what the expert does while it is watched
    side: Annotated[int, Field(ge=SMALLEST, le=512)]  # of pictures, in pixels
    stack: Count  # pictures seen at once
    length: Count  # steps of one sequence in training
    strengths: list[NotNegative]  # of noise in the joints, in tests
    dagger_every: Annotated[int, Field(ge=0)]  # iterations between questions to the expert; 0: never
    dagger_episodes: Count

    def resolved(self) -> Resolved:
        return resolve(self.env, **self.env_options)

    def watching(self) -> Watching:
        return Watching(self.episodes, self.trajectory_seed, self.side, self.expert_noise)

    def trajectories(self) -> dict[str, Any]:
        """All that they follow from."""
        names = ("env", "env_options", "expert", "episodes", "trajectory_seed", "expert_noise", "side")
        return {name: getattr(self, name) for name in names}

    @property
    def key(self) -> str:
        """The folder of the trajectories in the cache."""
        return key_of(self.trajectories())


class Imitation(Task):
    """Behaviour cloning (the paper's appendix E.1): from pictures, do what an expert did; then play."""

    name: ClassVar[str] = "imitation"
    title: ClassVar[str] = "Imitation from pixels"
    config_class: ClassVar[type[TaskConfig]] = ImitationConfig
    config: ImitationConfig

    def __init__(self, config: TaskConfig, data_dir: Path | None = None) -> None:
        super().__init__(config, data_dir)
        self._played: dict[str, Played] = {}
        self._aggregation: Aggregation | None = None

    @property
    def folder(self) -> Path:
        return cache_folder(self.data_dir) / self.config.key

    @cached_property
    def _read(self) -> tuple[Trajectories, About]:
        watched, about = read_trajectories(self.folder)
        return Trajectories([watched]), about

    @cached_property
    def actions(self) -> Actions:
        return Actions(self._read[1].space())

    def network(self) -> ImitationNetwork:
        config = self.config
        encoder = PictureEncoder(3 * config.stack, config.side)
        return ImitationNetwork(encoder, self.core(encoder.size), self.actions)

    def batch(self, seed: int, index: int) -> tuple[Tensor, ...]:
        random, config = np.random.default_rng((TRAINING, seed, index)), self.config
        pictures, actions, starts = self._read[0].windows(config.batch_size, config.length, config.stack, random)
        return torch.from_numpy(pictures), self.actions.targets(actions), torch.from_numpy(starts.astype(np.float32))

    def loss(self, network: nn.Module, *batch: Tensor) -> Tensor:
        pictures, targets, starts = batch
        return self.actions.loss(network(pictures, starts)[0], targets)

    def tests(self, network: nn.Module, sequences: int) -> Tests:
        """Mean return over so many episodes, as it is and with noise in the joints."""
        self._played = {name: self._play(network, env, sequences) for name, env in variants(self.config).items()}
        return {name: {"return": float(np.mean(played.scores))} for name, played in self._played.items()}

    def _play(self, network: nn.Module, env: Resolved, episodes: int) -> Played:
        assert isinstance(network, ImitationNetwork)
        pictured = Pictured(env, min(COPIES, episodes), TEST_SEED, self.config.side)
        try:
            return play(pictured, Learner(network, self.config.stack, env.deterministic), episodes)
        finally:
            pictured.close()

    def record(self, network: nn.Module) -> dict[str, Any]:
        """Every episode of the tests, and how much was learned from."""
        scores = {name: played.scores for name, played in self._played.items()}
        return {"scores": scores, "loss": self.actions.measure, "steps_seen": self._read[0].steps}

    def begin(self, folder: Path | None, done: int) -> None:
        if self.config.dagger_every:
            self._aggregation = Aggregation(self.folder, folder, self.config.env)
            for watched in self._aggregation.kept(done):
                self._read[0].add(watched)

    def after_iteration(self, network: nn.Module, seed: int, done: int) -> None:
        """Dataset aggregation: the network plays, and the expert says what it would have done (Ross et al., 2011)."""
        config = self.config
        if self._aggregation is None or done % config.dagger_every or done >= config.iterations:
            return
        assert isinstance(network, ImitationNetwork)
        network.eval()
        env = config.resolved()
        pictured = Pictured(env, min(COPIES, config.dagger_episodes), _seed_of_round(seed, done), config.side)
        try:
            learner = Learner(network, config.stack, env.deterministic)
            self._read[0].add(self._aggregation.ask(pictured, learner, config.dagger_episodes, done))
        finally:
            pictured.close()


def variants(config: ImitationConfig) -> dict[str, Resolved]:
    """What learners are tested in, by name."""
    env = config.resolved()
    if any(config.strengths) and not is_drawn_by_mujoco(env):
        raise UserError(f"strengths {config.strengths} are of noise in joints, and {env.id} has none; set strengths=[]")
    noisy = {f"noise {strength:g}": perturbed(env, strength) for strength in config.strengths if strength}
    return {CLEAN: env, **noisy}


def _seed_of_round(seed: int, done: int) -> int:
    """Of episodes that are neither the expert's own nor those of tests."""
    return TEST_SEED * 2 + int(np.random.SeedSequence((seed, done)).generate_state(1)[0] % 2**28)
