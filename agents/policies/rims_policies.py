"""Policies for Stable-Baselines3: encoder -> core -> heads, where the core is RIMs or any other of its kind.

They work in the unmodified ``sb3_contrib.RecurrentPPO``, and in :class:`rims_rl.agents.RecurrentPPO` and
:class:`rims_rl.agents.RecurrentA2C`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.distributions import CategoricalDistribution, Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, FlattenExtractor, MlpExtractor
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import Tensor, nn
from torch.optim import Adam

from rims_rl.agents.policies.cells_encoder import CellsEncoder
from rims_rl.agents.policies.encoders import DictEncoder, SpatialEncoder, are_plain_numbers, image_encoder
from rims_rl.agents.policies.precision import check_precision
from rims_rl.agents.policies.progressive import ProgressiveCore, ProgressiveEncoder
from rims_rl.common.errors import Diverged
from rims_rl.common.spaces import check_spaces
from rims_rl.core import Core, State, has_rims, make_core, takes_sets

Whose = Literal["actor", "critic"]
DEFAULT_CORE = "rims-robust"
FORMER_DEFAULTS: dict[int, dict[str, Any]] = {  # by the version of MlpRimsPolicy
    1: {"core": "rims"},
    2: {"core": "rims-listen"},
    3: {"core": "rims", "core_kwargs": {"asleep": "half-listen", "communication": "gated"}},  # with larger messages
}
CRITICS = ("shared", "separate", "none")
PARTS = ("encoder", "core", "heads")
NOT_FINITE = "the policy gives numbers that are not finite"
RunCore = Callable[[Core, Tensor, State, Tensor], tuple[Tensor, State]]  # features, state, starts -> output, state
POOL_QUERIES = 4  # as many as a RIM core of the zoo has input heads on MiniGrid
MASKED = -1e8  # sb3-contrib's, which is finite so that gradients are
DIVERGED = 1e4  # with numbers of this size in its memory, rounding decides what a policy does


class MlpRimsPolicy(RecurrentActorCriticPolicy):
    """For vector observations. The base of the other two, which only choose another encoder.

    Args:
        core: a name of docs/reference/cores.md, such as ``"rims"``, ``"scoff"``, ``"lstm"`` or ``"none"``, one given to
            :func:`rims_rl.register_core`, or the dotted path of a factory. Default: ``"rims-robust"``.
        num_rims: how many RIMs there are.
        num_active: how many of them are updated at each step.
        rim_size: units of one RIM. Every core has ``num_rims * rim_size`` units, so that cores compare; ``"ntm"`` and
            ``"dnc"`` have a memory beside them, and ``"rims-workspace"`` has slots.
        num_layers: layers of the core. Default: its own number, 2 for ``"brims"`` and 1 for others.
        critic: ``"shared"``: one core for actor and critic, with gradients from both; ``"separate"``: two cores;
            ``"none"``: the critic reads the encoder through one linear layer, without memory.
        core_kwargs: more options of the core, for ``"rims"`` those of :class:`rims_rl.RIMCell`.
        precision: ``"bf16"`` computes the encoder in bfloat16, which is faster for images on processors that have it;
            its weights, the core, heads, losses and the optimizer stay in float32, and so does what is exported.
        columns: how many frozen columns stand beside this network, see :mod:`rims_rl.agents.policies.progressive`.
        **kwargs: of Stable-Baselines3's ActorCriticPolicy (net_arch, activation_fn, optimizer_class, ...).
            sb3-contrib's ``lstm_hidden_size``, ``n_lstm_layers``, ``lstm_kwargs``, ``shared_lstm`` and
            ``enable_critic_lstm`` are mapped onto the arguments above.
    """

    encoder_class: type[BaseFeaturesExtractor] = FlattenExtractor
    lstm_actor: Core  # type: ignore[assignment]  # sb3-contrib knows LSTMs only; the names are its own
    lstm_critic: Core | None  # type: ignore[assignment]
    critic: nn.Module | None  # type: ignore[assignment]
    _masks: Tensor | None = None  # of what is computed now, see allowing()
    _version = 4  # torch saves it with the weights

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        *,
        core: str | None = None,
        num_rims: int = 6,
        num_active: int = 4,
        rim_size: int | None = None,
        num_layers: int | None = None,
        critic: str | None = None,
        core_kwargs: dict[str, Any] | None = None,
        precision: str = "float32",
        columns: int = 0,
        **kwargs: Any,
    ) -> None:
        check_spaces(observation_space, action_space)
        self._chose_core = core is not None
        core = core or DEFAULT_CORE
        given = {"core": core, "rim_size": rim_size, "num_rims": num_rims, "critic": critic, "num_layers": num_layers}
        kwargs, mapped = _map_contrib_names(kwargs, given)
        self.core_name, self.num_active = core, num_active
        self.num_rims: int = mapped["num_rims"]
        self.rim_size: int = mapped["rim_size"]
        self._wanted_layers: int | None = mapped["num_layers"]
        self.critic_kind: str = mapped["critic"]
        self.core_kwargs = {**mapped["lstm_kwargs"], **(core_kwargs or {})}
        self.precision, self.columns = precision, columns
        self.lstm_output_dim = self.num_rims * self.rim_size  # of one core, as sb3-contrib calls it
        if self.critic_kind not in CRITICS:
            raise ValueError(f'critic must be "shared", "separate" or "none", got {critic!r}')
        check_precision(precision)
        if self.critic_kind == "shared" and not kwargs.get("share_features_extractor", True):
            raise ValueError(
                'critic="shared" needs share_features_extractor=True, got False: one core cannot read two encoders; '
                'use critic="separate"'
            )
        if columns and (self.critic_kind != "shared" or takes_sets(core)):
            raise ValueError(
                f'columns={columns} needs critic="shared" and a core that reads one vector, such as "lstm", got '
                f"critic={self.critic_kind!r} and core={core!r}"
            )
        kwargs.setdefault("features_extractor_class", self.encoder_class)
        if isinstance(observation_space, spaces.Dict) and kwargs["features_extractor_class"] is FlattenExtractor:
            raise ValueError(
                f"{type(self).__name__} reads one vector, got a Dict of {', '.join(observation_space.spaces)}; use "
                "MultiInputRimsPolicy"
            )
        if kwargs.get("optimizer_class", Adam) is Adam and kwargs.get("optimizer_kwargs") is None:
            kwargs["optimizer_kwargs"] = {"eps": 1e-5, "fused": True}  # eps as in Stable-Baselines3
        # Not the constructor of RecurrentActorCriticPolicy: it would build LSTMs, only to throw them away.
        ActorCriticPolicy.__init__(self, observation_space, action_space, lr_schedule, **kwargs)
        self._plain_numbers = are_plain_numbers(observation_space, self.normalize_images)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # convolutions only; after their init

    def make_features_extractor(self) -> BaseFeaturesExtractor:
        make = super().make_features_extractor
        return ProgressiveEncoder(make, self.columns) if self.columns else make()

    def _build(self, lr_schedule: Schedule) -> None:
        if isinstance(self.action_space, spaces.Discrete):
            self.action_dist = _Choice(self.action_space)
        super()._build(lr_schedule)

    def _build_mlp_extractor(self) -> None:
        """Cores, and the heads' networks on top. Stable-Baselines3 calls this when it knows the encoder."""
        self.features_dim = int(self.features_dim)  # of MultiDiscrete observations it is numpy's
        self.lstm_actor, self.lstm_critic, self.critic = self._make_core(), None, None
        self.num_layers = self.lstm_actor.num_layers
        width = self.lstm_actor.output_size
        if self.critic_kind == "separate":
            self.lstm_critic = self._make_core()
        elif self.critic_kind == "none":
            self.critic = nn.Linear(self.features_dim, width)
        # what sb3-contrib's algorithms and predict() look at
        self.shared_lstm, self.enable_critic_lstm = self.critic_kind == "shared", self.critic_kind == "separate"
        self.lstm_hidden_state_shape = (self.num_layers, 1, self.lstm_actor.hidden_size)
        # Where new weights are made. self.device would be a guess if there are none so far: core "none" and no encoder.
        self.mlp_extractor = MlpExtractor(width, self.net_arch, self.activation_fn, torch.empty(0).device)

    def _make_core(self) -> Core:
        encoder = self.features_extractor
        if isinstance(encoder, ProgressiveEncoder):
            return ProgressiveCore(self._make_one_core, encoder.width, self.columns)
        # a user's encoder of one vector has no element_size
        width = getattr(encoder, "element_size", self.features_dim) if takes_sets(self.core_name) else self.features_dim
        return self._make_one_core(width)

    def _make_one_core(self, width: int) -> Core:
        core = make_core(
            self.core_name, width, self.lstm_output_dim, self.num_rims, self.num_active, self._wanted_layers,
            **self.core_kwargs,
        )  # fmt: skip
        if core.state_grows:
            raise ValueError(
                f"core {self.core_name!r} has a state that grows with every step, and RL needs a fixed one"
            )
        return core

    @property
    def core(self) -> Core:
        """The actor's core, which is also the critic's if that is shared."""
        return self.lstm_actor

    def parameter_counts(self) -> dict[str, int]:
        """How many parameters the encoder, the core and the heads have."""
        counts = dict.fromkeys(PARTS, 0)
        for name, parameter in self.named_parameters():
            counts[part_of(name)] += parameter.numel()
        return counts

    # Recurrent policies take states and episode starts, which Stable-Baselines3's do not know.
    def forward(  # type: ignore[override]
        self, obs: PyTorchObs, lstm_states: RNNStates, episode_starts: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, RNNStates]:
        actor, critic, states = self.run_cores(obs, lstm_states, episode_starts)
        actions, log_prob = self._act(self.actor_head(actor), deterministic)
        return actions.reshape((-1, *(self.action_space.shape or ()))), self.critic_head(critic), log_prob, states

    # The three stages, of the actor or of the critic: encoder, core, head. Whatever a policy does goes through them.

    def encode(self, obs: PyTorchObs, whose: Whose = "actor") -> Tensor:
        """What the core reads: one vector `(B, features)`, or a set of elements `(B, N, element_size)`."""
        if self.precision == "float32":
            return self._encode(obs, whose)
        with torch.autocast(self.device.type, torch.bfloat16):
            return self._encode(obs, whose).float()

    def _encode(self, obs: PyTorchObs, whose: Whose) -> Tensor:
        encoder = self.pi_features_extractor if whose == "actor" else self.vf_features_extractor
        bytes_ = isinstance(obs, Tensor) and obs.dtype == torch.uint8
        if bytes_ and self.normalize_images and getattr(encoder, "takes_bytes", False):
            features: Tensor = encoder(obs)
            return features
        if self._plain_numbers:  # what Stable-Baselines3 does with them, without asking at every step
            return encoder({key: o.float() for key, o in obs.items()} if isinstance(obs, dict) else obs.float())
        return super(ActorCriticPolicy, self).extract_features(obs, encoder)

    def run_core(
        self, features: Tensor, state: State, starts: Tensor, whose: Whose = "actor", run: RunCore | None = None
    ) -> tuple[Tensor, State]:
        """What the core makes of it, `(B, output_size)`, and the new state. ``features`` hold sequences one after the
        other, as many as the state is of; ``run`` is another way than :func:`run_sequences` to run a core over them.
        """
        if whose == "critic" and self.critic is not None:
            return self.critic(features.flatten(1)), state
        core = self.lstm_critic if whose == "critic" and self.lstm_critic is not None else self.lstm_actor
        return (run or run_sequences)(core, features if core.takes_sets else features.flatten(1), state, starts)

    def actor_head(self, memory: Tensor) -> Tensor:
        """What the distribution of actions is made from, see :meth:`action_net`."""
        return self.mlp_extractor.forward_actor(memory)

    def critic_head(self, memory: Tensor) -> Tensor:
        """Values, `(B, 1)`."""
        values: Tensor = self.value_net(self.mlp_extractor.forward_critic(memory))
        return values

    def run_cores(
        self, obs: PyTorchObs, states: RNNStates, starts: Tensor, run: RunCore | None = None
    ) -> tuple[Tensor, Tensor, RNNStates]:
        """The first two stages of both: what the actor's and the critic's head read, and the new states. What the two
        share is computed once."""
        before: Any = states  # pairs, but typed as tuples of any length
        features = self.encode(obs)
        memory, state = self.run_core(features, before.pi, starts, "actor", run)
        if self.critic_kind == "shared":
            return memory, memory, RNNStates(state, state)
        if not self.share_features_extractor:
            features = self.encode(obs, "critic")
        of_critic, critic_state = self.run_core(features, before.vf, starts, "critic", run)
        return memory, of_critic, RNNStates(state, critic_state if self.lstm_critic is not None else state)

    def _act(self, latent: Tensor, deterministic: bool) -> tuple[Tensor, Tensor]:
        """Actions and their log-probabilities. Those of Discrete spaces with fewer operations than torch.distributions
        takes, which counts in a rollout; the random numbers are used in the same way."""
        if not isinstance(self.action_space, spaces.Discrete):
            distribution = self._get_action_dist_from_latent(latent)
            actions = distribution.get_actions(deterministic=deterministic)
            return actions, distribution.log_prob(actions)
        logits = torch.log_softmax(self._logits(latent), -1)
        # what torch.multinomial does, which checks first, with more operations than it takes to draw
        scores = logits if deterministic else logits.exp().div_(torch.empty_like(logits).exponential_())
        index = scores.argmax(-1, keepdim=True)
        log_prob = logits.gather(-1, index).squeeze(-1)
        if log_prob.isnan().any():
            raise Diverged(NOT_FINITE)
        actions, start = index.squeeze(-1), int(self.action_space.start)
        return actions + start if start else actions, log_prob

    def evaluate_actions(  # type: ignore[override]
        self, obs: PyTorchObs, actions: Tensor, lstm_states: RNNStates, episode_starts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        actor, critic, _ = self.run_cores(obs, lstm_states, episode_starts)
        distribution = self._get_action_dist_from_latent(self.actor_head(actor))
        if isinstance(self.action_space, spaces.MultiBinary):
            actions = actions.float()  # buffers keep int8, which Bernoulli's log-probability does not take
        return self.critic_head(critic), distribution.log_prob(actions), distribution.entropy()

    @contextmanager
    def allowing(self, masks: Any) -> Iterator[None]:
        """Inside, no other actions are taken or expected than those that ``masks`` allow, `(B, actions)` bool, with the
        choices of MultiDiscrete actions side by side; None allows all."""
        self._masks = None if masks is None else torch.as_tensor(masks, dtype=torch.bool, device=self.device)
        try:
            yield
        finally:
            self._masks = None

    def _logits(self, latent: Tensor) -> Tensor:
        logits: Tensor = self.action_net(latent)
        return logits if self._masks is None else mask_logits(logits, self._masks)

    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Distribution:
        try:
            if self._masks is not None:
                return self.action_dist.proba_distribution(action_logits=self._logits(latent_pi))
            return super()._get_action_dist_from_latent(latent_pi)
        except ValueError as error:  # torch.distributions does not take nan
            if latent_pi.isfinite().all() and all(weight.isfinite().all() for weight in self.action_net.parameters()):
                raise
            raise Diverged(NOT_FINITE) from error

    def predict(
        self,
        observation: Any,
        state: tuple[np.ndarray, ...] | None = None,
        *args: Any,
        action_masks: np.ndarray | None = None,
        **kwargs: Any,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict):
            raise ValueError(
                "the observation is a pair (observation, info): that is mixing Gym API, whose reset() gives both, with "
                "the one of vectorised environments; give only the observation"
            )
        if state is None:
            tensors, _ = self.obs_to_tensor(observation)
            batch = len(next(iter(tensors.values())) if isinstance(tensors, dict) else tensors)
            state = tuple(part.detach().cpu().numpy() for part in self.core.initial_state(batch))
        with self.allowing(None if action_masks is None else np.atleast_2d(action_masks)):
            return super().predict(observation, state, *args, **kwargs)

    def get_distribution(  # type: ignore[override]
        self, obs: PyTorchObs, lstm_states: State, episode_starts: Tensor
    ) -> tuple[Distribution, State]:
        memory, state = self.run_core(self.encode(obs), lstm_states, episode_starts)
        return self._get_action_dist_from_latent(self.actor_head(memory)), state

    def predict_values(  # type: ignore[override]
        self, obs: PyTorchObs, lstm_states: State, episode_starts: Tensor
    ) -> Tensor:
        memory, _ = self.run_core(self.encode(obs, "critic"), lstm_states, episode_starts, "critic")
        return self.critic_head(memory)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, metadata: Any, *args: Any) -> None:
        former = FORMER_DEFAULTS.get(metadata.get("version", self._version))
        if former is not None and not self._chose_core:
            raise ValueError(
                f"these weights were saved when the default core was another than today's {DEFAULT_CORE!r}: say which "
                f"core they have, policy_kwargs={former}, in custom_objects if this is a load()"
            )
        super()._load_from_state_dict(state_dict, prefix, metadata, *args)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | {
            "core": self.core_name,
            "num_rims": self.num_rims,
            "num_active": self.num_active,
            "rim_size": self.rim_size,
            "num_layers": self.num_layers,
            "critic": self.critic_kind,
            "core_kwargs": self.core_kwargs,
            "precision": self.precision,
            "columns": self.columns,
            "share_features_extractor": self.share_features_extractor,
        }


def run_sequences(core: Core, features: Tensor, state: State, starts: Tensor) -> tuple[Tensor, State]:
    """Run a core over features that hold sequences one after the other, as sb3-contrib's buffers give them."""
    sequences = state[0].shape[1]
    # (sequences * T, ...) -> (T, sequences, ...)
    x = features.reshape(sequences, -1, *features.shape[1:]).transpose(0, 1)
    output, state = core(x, state, starts.reshape(sequences, -1).transpose(0, 1))
    return output.transpose(0, 1).flatten(0, 1), state


def mask_logits(logits: Tensor, masks: Tensor) -> Tensor:
    """Actions that are not allowed get a probability of exactly zero; others stay as they are, to the bit."""
    return torch.where(masks, logits, MASKED)


class _Choice(CategoricalDistribution):
    """Of Discrete actions, which need not count from 0 as Stable-Baselines3 does."""

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__(int(space.n))
        self.start = int(space.start)

    def sample(self) -> Tensor:
        return super().sample() + self.start

    def mode(self) -> Tensor:
        return super().mode() + self.start

    def log_prob(self, actions: Tensor) -> Tensor:
        # sb3-contrib fills sequences up with zeros, which need not be actions; it does not look at what comes of them
        return super().log_prob((actions - self.start) % self.action_dim)


class CnnRimsPolicy(MlpRimsPolicy):
    """For images, and for small grids of codes.

    Args:
        input: ``"vector"``: features of the whole image are one element, NatureCNN's or, of images below 36 x 36 and of
            grids, those of a smaller network; ``"spatial"``: the positions of its last feature map
            are a set of elements, with positions encoded.
        **kwargs: of :class:`MlpRimsPolicy`. Unlike there, ``net_arch`` is empty by default: the heads are linear.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        *,
        input: str = "vector",
        **kwargs: Any,
    ) -> None:
        if input not in ("vector", "spatial"):
            raise ValueError(f'input must be "vector" or "spatial", got {input!r}')
        self.encoder_class = SpatialEncoder if input == "spatial" else image_encoder(observation_space)
        kwargs.setdefault("net_arch", [])
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)


class MultiInputRimsPolicy(MlpRimsPolicy):
    """For Dict observations.

    Args:
        input: ``"keys"``: each key is one element that RIMs attend to; ``"cells"``: so are each cell of a small grid of
            codes, such as MiniGrid's symbolic view, and each word of a mission. Cores that read one vector are then
            given what four learned queries read of the elements.
        **kwargs: of :class:`MlpRimsPolicy`.
    """

    encoder_class: type[BaseFeaturesExtractor] = DictEncoder

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        *,
        input: str = "keys",
        **kwargs: Any,
    ) -> None:
        if not isinstance(observation_space, spaces.Dict):
            raise ValueError(f"MultiInputRimsPolicy needs a Dict observation space, got {observation_space}")
        if input not in ("keys", "cells"):
            raise ValueError(f'input must be "keys" or "cells", got {input!r}')
        if input == "cells":
            self.encoder_class = CellsEncoder
            queries = None if takes_sets(kwargs.get("core") or DEFAULT_CORE) else POOL_QUERIES
            kwargs["features_extractor_kwargs"] = {
                "queries": queries,
                **(kwargs.get("features_extractor_kwargs") or {}),
            }
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)


def part_of(name: str) -> str:
    """To which of ``PARTS`` a weight belongs."""
    first = name.split(".")[0]
    if first in ("lstm_actor", "lstm_critic"):
        return "core"
    return "encoder" if first.endswith("features_extractor") else "heads"


def _map_contrib_names(kwargs: dict[str, Any], given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """sb3-contrib's keyword names -> ours. Returns what is left of ``kwargs``, and our arguments with their values."""
    kwargs = dict(kwargs)
    width = kwargs.pop("lstm_hidden_size", None)
    shared, separate = kwargs.pop("shared_lstm", None), kwargs.pop("enable_critic_lstm", None)
    layers = kwargs.pop("n_lstm_layers", None) or given["num_layers"]
    options = kwargs.pop("lstm_kwargs", None) or {}
    rim_size, num_rims, critic = given["rim_size"], given["num_rims"], given["critic"]
    if width is not None:
        if rim_size is not None:
            raise ValueError(
                f"give rim_size or lstm_hidden_size, not both: got rim_size={rim_size} and lstm_hidden_size={width}"
            )
        if width % num_rims and not has_rims(given["core"]):
            num_rims = 1
        if width % num_rims:
            raise ValueError(
                f"lstm_hidden_size must be a multiple of num_rims={num_rims}, got {width}; "
                f"{max(1, width // num_rims) * num_rims} would do"
            )
        rim_size = width // num_rims
    if shared is not None or separate is not None:
        if critic is not None:
            raise ValueError(f"give critic or shared_lstm and enable_critic_lstm, not both: got critic={critic!r}")
        if shared and separate:
            raise ValueError(
                "shared_lstm and enable_critic_lstm cannot both be True: the critic has one core or the other"
            )
        critic = "shared" if shared else "none" if separate is False else "separate"
    if critic is None:  # one core cannot read two encoders
        critic = "shared" if kwargs.get("share_features_extractor", True) else "separate"
    names = {"num_rims": num_rims, "rim_size": rim_size or 100, "num_layers": layers}
    return kwargs, {**names, "critic": critic, "lstm_kwargs": options}
