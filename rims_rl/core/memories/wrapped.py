"""torch's own recurrent networks as cores: what a user's factory may return instead of a core."""

from __future__ import annotations

from torch import Tensor, nn

from rims_rl.core.core import State
from rims_rl.core.memories.baselines import Baseline


class Wrapped(Baseline):
    """A :class:`torch.nn.LSTM`, GRU or RNN, time first and in one direction; the second state tensor of the latter two
    is carried untouched. Arguments, inputs and outputs are those of :class:`Core`."""

    def __init__(self, network: nn.RNNBase) -> None:
        if network.batch_first or network.bidirectional or network.proj_size:
            raise ValueError(
                "a torch.nn.LSTM, GRU or RNN must have batch_first=False, bidirectional=False and proj_size=0, got "
                f"{network}"
            )
        super().__init__(network.input_size, network.hidden_size, network.num_layers)
        self.network = network

    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if isinstance(self.network, nn.LSTM):
            output, new = self.network(x, state)
            return output, new
        output, h = self.network(x, state[0])
        return output, (h, state[1].clone())
