"""One layer of Recurrent Independent Mechanisms, one step at a time: the parameters and the readable equations.

``engines/`` run the same equations over whole sequences, much faster; tests hold the two together.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rims_rl.core.checks import check_input, check_state
from rims_rl.core.core import State
from rims_rl.core.rims.at_rest import AtRest
from rims_rl.core.rims.cell_options import GATES, check_options

EPSILON = 1e-7  # of the released code


class RIMStep(NamedTuple):
    """What one step gives: the new state, and what happened on the way to it (K RIMs, N elements, batch B).

    ``RIM.step`` has ``h`` and ``c`` of all layers, ``(num_layers, B, hidden_size)``, and the rest of the last layer.
    """

    h: Tensor  # (B, hidden_size)
    c: Tensor  # (B, hidden_size)
    active: Tensor  # (B, K) bool
    input_attention: Tensor  # (B, K, N + 1), null last, averaged over heads; what competition took away is zero
    communication: Tensor  # (B, K, K), averaged over heads, rows of inactive RIMs zero


class Updated(NamedTuple):
    """Where :meth:`RIMCell.update` leaves a step: before RIMs communicate."""

    h: Tensor  # (B, K, H)
    c: Tensor  # (B, K, H)
    heard: Tensor  # (B, K, H): what the others hear of each RIM
    active: Tensor  # (B, K) bool
    input_attention: Tensor  # (B, K, N + 1)


class RIMCell(nn.Module):
    r"""One step of one layer of Recurrent Independent Mechanisms, with the call of :class:`torch.nn.LSTMCell`.

    RIM :math:`k` of :math:`K` has the state :math:`h_k` (and :math:`c_k`), of ``hidden_size / num_rims`` units.
    The input is a set of elements; with a row of zeros, the null element, appended it is :math:`X`:

    .. math::
        \begin{array}{ll}
        a_k = \mathrm{softmax}\big(h_k W^q_k (X W^e)^\top / \sqrt{d}\big)
            & \text{attention over elements and null} \\
        S = \text{the num\_active RIMs with the least attention on null}
            & \text{ties: the lowest index} \\
        \tilde h_k, c'_k = D_k(a_k X W^v, h_k, c_k)
            & k \in S;\ D_k \text{ an LSTM or GRU cell of its own} \\
        \tilde h_k, c'_k = h_k, c_k
            & k \notin S \\
        p_k = \mathrm{softmax}\big(\tilde h_k \tilde W^q_k (\tilde h_j \tilde W^e_j)_{j=1..K}^\top / \sqrt{e}\big)
            & \text{what RIM } k \text{ listens to} \\
        h'_k = \tilde h_k + \big(\textstyle\sum_j p_{kj} \tilde h_j \tilde W^v_j\big) \tilde W^o_k
            & k \in S;\ \text{else } h'_k = \tilde h_k
        \end{array}

    With several heads each head has its own keys, queries and values; what they read is concatenated, and the attention
    on null is averaged over them.

    Args:
        input_size: width of one input element.
        hidden_size: width of the whole state, ``num_rims`` times the size of one RIM.
        num_rims: how many RIMs there are.
        num_active: how many of them are updated at each step.
        cell: ``"lstm"`` or ``"gru"``. A GRU has no ``c``: it carries the one it is given, untouched.
        input_heads: heads of the input attention.
        input_key_size: key size of each of these heads.
        input_value_size: what a RIM reads, all heads together. Default: 4 times the size of one RIM.
        comm_heads: heads of the communication.
        comm_key_size: key size of each of these heads.
        comm_value_size: value size of each of these heads.
        comm_top_k: if given, each head listens only to the ``comm_top_k`` RIMs with the largest logits.
        input_dropout: dropout on the vector that a RIM reads.
        comm_dropout: dropout on the vector that communication adds.
        input_attention: ``False``: every RIM reads the mean of the elements' values, and all are active.
        communication: ``True``: a message is added to the state, as in the paper. ``"gated"``: it is bounded and gated
            first, :math:`h'_k = \tilde h_k + \sigma(r_k W^g_k) \tanh(r_k \tilde W^o_k)` with what is received,
            :math:`r_k = \sum_j p_{kj} \tilde h_j \tilde W^v_j`, as in the authors' released code. ``False``: RIMs never
            hear of each other.
        position_competition: at each element only the ``num_active`` RIMs with the highest attention to it keep that
            attention (no renormalizing); then the ``num_active`` RIMs with the most attention left are active.
        own_elements: RIM k reads element k (or null) and no other, so there must be ``num_rims`` elements: the paper's
            view with one encoder for each RIM.
        start: ``"zero"``, or ``"learned"``: each RIM learns the state in which it begins an episode, so that RIMs
            differ from the first step on.
        initialization: how weights begin: ``"paper"``, see below, or ``"released"``, as in the authors' released code:
            attention 0.01 * normal, dynamics uniform within :math:`\pm 1/\sqrt{\text{hidden\_size}}`.
        hear: what active RIMs hear of the others: their ``"states"``, or their ``"updates"``, what they would have
            become, with the gradient blocked, as in the released code. All RIMs are then computed, active or not.
        asleep: what RIMs do that are not active. They ``"keep"`` their state, as in the paper, or ``"drift"``: their
            own dynamics go on, :math:`\tilde h_k, c'_k = D_k(0, h_k, c_k)`, without reading and without messages. So a
            memory that has to move at every step does, and a RIM that nobody woke does not stay at zero. Or they
            ``"listen"``: the same, but they get messages as active ones do, and only reading is left to the winners.
            ``"half-listen"``: the first half of them, rounded down, keep their state, and the others listen: some
            store what others compute. RIMs that do not keep their state are always computed.
        activation: ``"exactly"`` num_active RIMs are updated, or ``"at_most"``: of these only such as have no more than
            ``null_bound`` of their attention on null (the open question of the paper's appendix C.1).
        null_bound: see ``activation``.
        balance: if above 0, a bias of each RIM, which counts only in the choice of who is active, goes up or down by so
            much after each sequence in training, for those who were active less or more often than the others (Wang et
            al., "Auxiliary-loss-free load balancing", 2024, arXiv:2408.15664). Saved with the weights.
        selection: ``"hard"``: no gradient reaches the choice of who is active. ``"straight-through"``: the update of an
            active RIM is scaled by :math:`1 + p - \mathrm{stop\_gradient}(p)`, where p is its attention to the input:
            the same numbers, and the competition learns from what it did. ``"soft"``: it is scaled by p.
        competition: RIMs compete by their attention to ``"null"``, or among ``"rims"``, as in the authors' released
            Atari code: softmax over RIMs for each element, less the largest value of those who stay out, and what is
            left is normalized.

    Inputs: x, (h_0, c_0)
        - **x** of shape `(B, input_size)`, or `(B, N, input_size)` for a set of N elements.
        - **h_0**, **c_0** of shape `(B, hidden_size)`; zeros if not given. RIM k owns the slice
          ``[k * rim_size, (k + 1) * rim_size)``.

    Outputs: (h_1, c_1), shaped like h_0 and c_0.

    Attributes:
        input_key: shared, `(input_heads * input_key_size, input_size)`. Absent without input attention.
        input_value: shared, `(input_value_size, input_size)`.
        input_query: `(num_rims, input_heads * input_key_size, rim_size)`. Absent without input attention.
        weight_ih, weight_hh, bias_ih, bias_hh: of nn.LSTMCell or nn.GRUCell (gates in their order: i, f, g, o or
            r, z, n), stacked over RIMs: `(num_rims, gates * rim_size, ...)`.
        comm_qkv: `(num_rims, comm_heads * (2 * comm_key_size + comm_value_size), rim_size)`; for each head its
            query, key and value rows. Absent without communication.
        comm_out: `(num_rims, rim_size, comm_heads * comm_value_size)`. Absent without communication.
        comm_gate: as comm_out. Only with gated communication.
        start_h, start_c: `(num_rims, rim_size)`. Only with a learned start; a GRU has no start_c.
        balance_bias: `(num_rims,)`, a buffer. Only with balance.

    Weights start uniform within :math:`\pm 1/\sqrt{\text{fan in}}`, as in nn.Linear; those of the dynamics within
    :math:`\pm 1/\sqrt{\text{rim\_size}}`, as in nn.LSTM. No attention projection has a bias.

    With g = 4 gates (LSTM) or 3 (GRU), H = rim_size, K = num_rims and the sizes above, the number of parameters is
    ``input_size * (input_heads * input_key_size + input_value_size) + K * H * (input_heads * input_key_size
    + g * (input_value_size + H + 2) + comm_heads * (2 * comm_key_size + 2 * comm_value_size))``.

    To change the mechanism, override one of its steps in a subclass, and give the class to :class:`RIM` as
    ``cell_class``: :meth:`initial_state`, :meth:`attend`, :meth:`choose_active`, :meth:`read`, :meth:`dynamics`,
    :meth:`communicate`, :meth:`add_message`, or :meth:`step` as a whole; :meth:`weight_shapes` for more weights, and
    ``shared_weights`` for those that have no slice for each RIM; :attr:`state_size` for a memory beside the RIMs. The
    fast engines know these equations only, so such a class runs in the readable one, unless its ``engines`` say that
    others do the same.

    Example::

        >>> cell = RIMCell(10, 60, num_rims=6, num_active=4)
        >>> h, c = cell(torch.randn(3, 10))
        >>> h.shape
        torch.Size([3, 60])
    """

    input_key: nn.Parameter
    input_value: nn.Parameter
    input_query: nn.Parameter
    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias_ih: nn.Parameter
    bias_hh: nn.Parameter
    comm_qkv: nn.Parameter
    comm_out: nn.Parameter
    comm_gate: nn.Parameter
    start_h: nn.Parameter
    start_c: nn.Parameter
    balance_bias: Tensor

    engines: tuple[str, ...] = ("c", "torch", "readable")  # that compute what the methods below say
    replays: ClassVar[bool] = True  # whether ``replayed`` says who is active, see RIM.replay
    shared_weights: ClassVar[tuple[str, ...]] = ("input_key", "input_value")  # the others have a slice for each RIM

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "engines" not in vars(cls) and not MECHANISM.isdisjoint(vars(cls)):
            cls.engines = ("readable",)
        if "replays" not in vars(cls) and not {"step", "update"}.isdisjoint(vars(cls)):
            cls.replays = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_rims: int = 6,
        num_active: int = 4,
        *,
        cell: str = "lstm",
        input_heads: int = 1,
        input_key_size: int = 64,
        input_value_size: int | None = None,
        comm_heads: int = 4,
        comm_key_size: int = 32,
        comm_value_size: int = 32,
        comm_top_k: int | None = None,
        input_dropout: float = 0.0,
        comm_dropout: float = 0.0,
        input_attention: bool = True,
        communication: bool | str = True,
        position_competition: bool = False,
        own_elements: bool = False,
        start: str = "zero",
        initialization: str = "paper",
        hear: str = "states",
        asleep: str = "keep",
        activation: str = "exactly",
        null_bound: float = 0.5,
        balance: float = 0.0,
        selection: str = "hard",
        competition: str = "null",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_rims = num_rims
        self.num_active = num_active
        self.cell = cell
        self.input_heads = input_heads
        self.input_key_size = input_key_size
        self.input_value_size = 4 * (hidden_size // max(num_rims, 1)) if input_value_size is None else input_value_size
        self.comm_heads = comm_heads
        self.comm_key_size = comm_key_size
        self.comm_value_size = comm_value_size
        self.comm_top_k = comm_top_k
        self.input_dropout = input_dropout
        self.comm_dropout = comm_dropout
        self.input_attention = input_attention
        self.communication = communication
        self.position_competition = position_competition
        self.own_elements = own_elements
        self.start = start
        self.initialization = initialization
        self.hear = hear
        self.asleep = asleep
        self.activation = activation
        self.null_bound = null_bound
        self.balance = balance
        self.selection = selection
        self.competition = competition
        check_options(self)
        self.rim_size = hidden_size // num_rims
        if not input_attention:
            self.num_active = num_rims
        self.rims = list(range(num_rims))  # what they are called; fewer if some are taken out
        # so many, the first, keep their state while they are not active
        self.num_stores = {"keep": num_rims, "half-listen": num_rims // 2}.get(asleep, 0)
        self.forced: Tensor | None = None  # indices of RIMs, see RIM.force
        self.replayed: Tensor | None = None  # (B, K): who is active, instead of a competition, see RIM.replay
        self.at_rest = AtRest()

        for name, shape in self.weight_shapes().items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        if balance:
            self.register_buffer("balance_bias", torch.zeros(num_rims, device=device, dtype=dtype))
        self.reset_parameters()

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """What the layer's weights are called, and their shapes (see the class docstring)."""
        K, H, gates = self.num_rims, self.rim_size, GATES[self.cell] * self.rim_size
        keys, m, e, v = (
            self.input_heads * self.input_key_size,
            self.comm_heads,
            self.comm_key_size,
            self.comm_value_size,
        )
        shapes: dict[str, tuple[int, ...]] = {"input_value": (self.input_value_size, self.input_size)}
        if self.input_attention:
            shapes |= {"input_key": (keys, self.input_size), "input_query": (K, keys, H)}
        shapes |= {"weight_ih": (K, gates, self.input_value_size), "weight_hh": (K, gates, H)}
        shapes |= {"bias_ih": (K, gates), "bias_hh": (K, gates)}
        if self.communication:
            shapes |= {"comm_qkv": (K, m * (2 * e + v), H), "comm_out": (K, H, m * v)}
        if self.communication == "gated":
            shapes |= {"comm_gate": (K, H, m * v)}
        if self.start == "learned":
            shapes |= {"start_h": (K, H)} | ({"start_c": (K, H)} if self.cell == "lstm" else {})
        return shapes

    @property
    def competes(self) -> bool:
        """Whether it depends on the input who is active."""
        return self.num_active < self.num_rims or self.activation == "at_most"

    def has_hooks(self) -> bool:
        forward, backward = self._forward_pre_hooks or self._forward_hooks, self._backward_pre_hooks
        return bool(forward or backward or self._backward_hooks)

    def reset_parameters(self) -> None:
        """Draw new weights (see the class docstring)."""
        dynamics = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        released = self.initialization == "released"
        for name, parameter in self.named_parameters(recurse=False):
            if name in ("start_h", "start_c"):
                nn.init.normal_(parameter, std=0.3)
            elif released and name in ("input_key", "input_value", "input_query", "comm_qkv"):
                nn.init.normal_(parameter, std=0.01)
            else:
                fan_in = parameter.shape[-1]
                if name in dynamics:
                    fan_in = self.hidden_size if released else self.rim_size
                nn.init.uniform_(parameter, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))
        if self.balance:
            nn.init.zeros_(self.balance_bias)

    def extra_repr(self) -> str:
        """Sizes, then the options that differ from their defaults."""
        text = f"{self.input_size}, {self.hidden_size}, num_rims={self.num_rims}, num_active={self.num_active}"
        options: dict[str, inspect.Parameter] = {}
        for cls in reversed(type(self).__mro__):  # a subclass may name its own and pass on the rest
            options |= inspect.signature(cls).parameters if issubclass(cls, RIMCell) else {}
        for name, option in options.items():
            default = 4 * self.rim_size if name == "input_value_size" else option.default
            if option.kind is option.KEYWORD_ONLY and getattr(self, name, default) != default:
                text += f", {name}={getattr(self, name)!r}"
        return text

    @property
    def state_size(self) -> int:
        """Width of h and c: ``hidden_size``, unless a subclass keeps something behind the states of its RIMs."""
        return self.hidden_size

    @property
    def balances(self) -> bool:
        """Whether it wants to be told who was active, see :meth:`rebalance`."""
        return self.balance > 0 and self.training

    def initial_state(self, batch: int) -> State:
        """The state before a first step, each `(batch, state_size)`: zeros, or what each RIM has learned."""
        h, c = (self.input_value.new_zeros(batch, self.hidden_size) for _ in range(2))
        if self.start == "learned":
            h = h + self.start_h.flatten()
            c = c + self.start_c.flatten() if self.cell == "lstm" else c
        return h, c

    def forward(
        self, x: Tensor, state: State | None = None, *, steps: list[RIMStep] | None = None
    ) -> tuple[Tensor, Tensor]:
        self.check_input(x)
        if state is None:
            state = self.initial_state(x.shape[0])
        check_state(state, (x.shape[0], self.state_size), self.input_value)
        step = self.step(x, *state)
        if steps is not None:
            steps.append(step)
        return step.h, step.c

    def check_input(self, x: Any) -> None:
        """An error if ``x`` is no input of a single step."""
        check_input(x, self.input_value)
        if x.dim() not in (2, 3) or x.shape[-1] != self.input_size:
            raise ValueError(
                f"x must be (B, {self.input_size}) or (B, N, {self.input_size}): input_size is {self.input_size}, "
                f"got shape {tuple(x.shape)}"
            )

    def step_with_hooks(self, x: Tensor, h: Tensor, c: Tensor) -> RIMStep:
        """:meth:`step`, by way of a call of the cell if it has hooks."""
        if not self.has_hooks():
            return self.step(x, h, c)
        steps: list[RIMStep] = []
        h, c = self(x, (h, c), steps=steps)
        return steps[-1]._replace(h=h, c=c)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> RIMStep:
        """The equations of the class docstring. ``x`` is `(B, input_size)` or `(B, N, input_size)`."""
        h, c, heard, active, attention = self.update(x, h, c)
        if self.communication:
            message, listening = self.communicate(heard)
            message = F.dropout(message, self.comm_dropout, self.training)
            hears = self.who_hears(active)
            h, listening = torch.where(hears, self.add_message(h, message), h), listening * hears
        else:
            listening = h.new_zeros(*h.shape[:2], self.num_rims)
        return RIMStep(h.flatten(1), c.flatten(1), active, attention, listening)

    def update(self, x: Tensor, h: Tensor, c: Tensor) -> Updated:
        """A step up to communication: RIMs compete, read, and are updated."""
        if x.dim() == 2:
            x = x.unsqueeze(1)
        h, c = (s.unflatten(-1, (self.num_rims, self.rim_size)) for s in (h, c))  # (B, K, H)
        weights = self.attend(x, h)
        attention = weights.mean(1)
        active = self.choose_active(attention) if self.replayed is None else self.replayed
        read = F.dropout(self.read(x, weights), self.input_dropout, self.training)
        updated = active.unsqueeze(-1)
        if self.asleep != "keep":
            read = torch.where(updated, read, 0)
        h_new, c_new = self.dynamics(read, h, c)
        asleep = self.while_asleep(h, h_new), self.while_asleep(c, c_new)
        h_new, c_new = self.take_over(attention, h, h_new), self.take_over(attention, c, c_new)
        h, c = torch.where(updated, h_new, asleep[0]), torch.where(updated, c_new, asleep[1])
        heard = torch.where(updated, h, h_new.detach()) if self.hear == "updates" else h
        return Updated(h, c, heard, active, attention)

    def who_hears(self, active: Tensor) -> Tensor:
        """Who gets a message, `(B, K, 1)` bool."""
        if self.asleep in ("keep", "drift"):
            return active.unsqueeze(-1)
        return active.unsqueeze(-1) | ~self.stores(active.device)

    def while_asleep(self, old: Tensor, new: Tensor) -> Tensor:
        """The state of those who are not active, `(B, K, H)`."""
        if self.asleep == "half-listen":
            return torch.where(self.stores(old.device), old, new)
        return old if self.asleep == "keep" else new

    def stores(self, device: torch.device) -> Tensor:
        """Who keep their state while they are not active, `(K, 1)` bool."""
        return torch.tensor([k < self.num_stores for k in self.rims], device=device).unsqueeze(-1)

    def attend(self, x: Tensor, h: Tensor) -> Tensor:
        """Equations 1 to 3: how much each RIM attends to each element and, last, to null, `(B, heads, K, N + 1)`."""
        batch, elements, heads = x.shape[0], x.shape[1], self.input_heads
        if not self.input_attention:
            return F.pad(h.new_full((batch, heads, self.num_rims, elements), 1 / elements), (0, 1))
        keys = F.linear(x, self.input_key).unflatten(-1, (heads, -1))  # (B, N, heads, d)
        queries = per_rim(h, self.input_query).unflatten(-1, (heads, -1))  # (B, K, heads, d)
        logits = torch.einsum("bkhd,bnhd->bhkn", queries, keys) / math.sqrt(self.input_key_size)
        if self.own_elements:
            logits = logits.masked_fill(self.foreign(elements, logits.device), -math.inf)
        if self.competition == "rims":
            return F.pad(self._compete_among_rims(logits), (0, 1))
        # The null element is a row of zeros: its key and value are zero, so its logit is zero and it adds no value.
        weights = torch.softmax(F.pad(logits, (0, 1)), -1)
        if self.position_competition:
            kept = smallest(-weights.mean(1)[..., :-1], self.num_active, dim=1)  # (B, K, N)
            weights = weights * F.pad(kept, (0, 1), value=True).unsqueeze(1)
        return weights

    def choose_active(self, attention: Tensor) -> Tensor:
        """Who is updated, `(B, K)` bool, of the attention averaged over heads, `(B, K, N + 1)`."""
        if not self.input_attention:
            return torch.ones_like(attention[..., 0], dtype=torch.bool)
        by_null = self.competition == "null" and not self.position_competition
        null = attention[..., -1] if by_null else -attention[..., :-1].sum(-1)
        if self.balance:
            null = null - self.balance_bias
        active = smallest(self.forced_first(null, dim=1), self.num_active, dim=1)
        if self.activation == "at_most":
            active = active & (self.forced_first(attention[..., -1], dim=1) <= self.null_bound)
        return active

    def _compete_among_rims(self, logits: Tensor) -> Tensor:
        """Attention `(B, heads, K, N)` of those who win an element, which share it."""
        weights = torch.softmax(logits, 2)
        if self.num_active + 1 >= self.num_rims:  # as released: then nobody is left out here
            return weights
        left_out = weights.topk(self.num_active + 1, 2).values[:, :, -1:] + EPSILON
        weights = (weights - left_out).clamp_min(0)
        return weights / (weights.sum(2, keepdim=True) + EPSILON)

    def take_over(self, attention: Tensor, old: Tensor, new: Tensor) -> Tensor:
        """What an active RIM takes over of its new state, `(B, K, H)`: all of it, unless ``selection`` says no."""
        if self.selection == "hard":
            return new
        p = attention[..., :-1].sum(-1, keepdim=True)  # of the input; the rest is null's
        return old + (p if self.selection == "soft" else 1 + p - p.detach()) * (new - old)

    @torch.no_grad()
    def rebalance(self, active: Tensor) -> None:
        """Make it easier for those who were active too rarely, `(T, B, K)`, and harder for the others."""
        share = active.to(self.balance_bias.dtype).mean((0, 1))
        self.balance_bias += self.balance * torch.sign(share.mean() - share)

    def read(self, x: Tensor, weights: Tensor) -> Tensor:
        """What each RIM reads, `(B, K, input_value_size)`."""
        values = F.linear(x, self.input_value)  # (B, N, V)
        if not self.input_attention:
            return values.mean(1, keepdim=True).expand(-1, self.num_rims, -1)
        values = values.unflatten(-1, (self.input_heads, -1))
        return torch.einsum("bhkn,bnhv->bkhv", weights[..., :-1], values).flatten(2)

    def forced_first(self, null: Tensor, dim: int) -> Tensor:
        """The attention on null by which RIMs compete: nobody is before those who are forced to be active."""
        return null if self.forced is None else null.index_fill(dim, self.forced, -math.inf)

    def foreign(self, elements: int, device: torch.device) -> Tensor:
        """With own elements, where a RIM must not look: (K, N)."""
        if elements <= max(self.rims):
            raise ValueError(f"own_elements needs an element for each RIM, got {elements} elements")
        return torch.arange(elements, device=device) != torch.tensor(self.rims, device=device).unsqueeze(1)

    def dynamics(self, read: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """An LSTM or GRU cell of its own for each RIM."""
        from_read = per_rim(read, self.weight_ih) + self.bias_ih
        from_state = per_rim(h, self.weight_hh) + self.bias_hh
        return recur(self.cell, from_read, from_state, h, c)

    def communicate(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """The message that each RIM would get from all of them, `(B, K, H)`, and how much it listens to whom,
        `(B, K, K)`."""
        qkv = per_rim(h, self.comm_qkv).unflatten(-1, (self.comm_heads, -1))
        q, k, v = qkv.split([self.comm_key_size, self.comm_key_size, self.comm_value_size], -1)  # (B, K, heads, .)
        logits = torch.einsum("bkhe,bjhe->bhkj", q, k) / math.sqrt(self.comm_key_size)
        if self.comm_top_k is not None:
            logits = logits.masked_fill(~smallest(-logits, self.comm_top_k, dim=-1), -math.inf)
        weights = torch.softmax(logits, -1)
        received = torch.einsum("bhkj,bjhv->bkhv", weights, v).flatten(2)
        return self.message(received), weights.mean(1)

    def message(self, received: Tensor) -> Tensor:
        """What a RIM makes of what it received, all heads together: `(B, K, H)`."""
        message = per_rim(received, self.comm_out)
        if self.communication == "gated":
            message = torch.sigmoid(per_rim(received, self.comm_gate)) * torch.tanh(message)
        return message

    def add_message(self, h: Tensor, message: Tensor) -> Tensor:
        """The state of those who are updated, after communication: the paper's residual."""
        return h + message


# The steps of the mechanism: whoever overrides one has other equations.
MECHANISM = frozenset(
    name for name, value in vars(RIMCell).items() if callable(value) and not name.startswith("__")
) - {"weight_shapes", "reset_parameters", "extra_repr", "check_input", "has_hooks", "step_with_hooks", "rebalance"}


def per_rim(x: Tensor, weight: Tensor) -> Tensor:
    """Each RIM's vector times its own matrix: (B, K, i), (K, o, i) -> (B, K, o).

    Not an einsum: ONNX Runtime would turn all the weights around at every step.
    """
    return torch.matmul(x.transpose(0, 1), weight.transpose(1, 2)).transpose(0, 1)


def recur(cell: str, from_read: Tensor, from_state: Tensor, h: Tensor, c: Tensor) -> State:
    """torch's LSTM or GRU cell, given what its two matrices and biases make of the input and of h, `(..., gates)`."""
    if cell == "gru":
        r_read, z_read, n_read = from_read.chunk(3, -1)
        r_state, z_state, n_state = from_state.chunk(3, -1)
        r, z = torch.sigmoid(r_read + r_state), torch.sigmoid(z_read + z_state)
        n = torch.tanh(n_read + r * n_state)
        return (1 - z) * n + z * h, c
    i, f, g, o = (from_read + from_state).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def smallest(x: Tensor, count: int, dim: int) -> Tensor:
    """Boolean mask of the ``count`` smallest entries along ``dim``; of equal ones, those with the lowest index."""
    if count == x.shape[dim]:
        return torch.ones_like(x, dtype=torch.bool)
    first = order(x, dim).narrow(dim, 0, count)
    return torch.zeros_like(x, dtype=torch.bool).scatter(
        dim, first, 1
    )  # neither True nor in place: for torch.jit.trace, vmap


def order(x: Tensor, dim: int) -> Tensor:
    """Indices that sort ``x``, smallest first.

    A stable sort, because topk leaves the choice among equal entries open, and at a first step (h = 0) all are equal.
    """
    return torch.sort(x.detach(), dim=dim, stable=True).indices
