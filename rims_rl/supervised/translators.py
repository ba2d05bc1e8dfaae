"""Networks that translate: an encoder that all languages share, and a decoder with attention for each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rims_rl.core import Core, State, weights_at_rest
from rims_rl.core.memories.transformer import sinusoids
from rims_rl.supervised.data.subwords import BEGIN, END, PAD


class Translator(nn.Module):
    """What both kinds have: the pieces' vectors, and translating piece by piece.

    Args:
        embedding_size: of the vector of a piece.
        source: how many pieces the language to translate from has.
        targets: languages to translate into, and how many pieces each has.
        dropout: on the vectors of pieces, and before a piece is chosen.
    """

    core: nn.Module  # the encoder's

    def __init__(self, embedding_size: int, source: int, targets: Mapping[str, int], dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(source, embedding_size)
        spoken = {name: nn.Embedding(size, embedding_size) for name, size in targets.items()}
        self.spoken = nn.ModuleDict(spoken)
        self.bias = nn.ParameterDict({name: nn.Parameter(torch.zeros(size)) for name, size in targets.items()})
        self.dropout = nn.Dropout(dropout)
        for embedding in (self.embedding, *spoken.values()):
            nn.init.normal_(embedding.weight, std=embedding_size**-0.5)  # the same weights choose the next piece

    def forward(self, source: Tensor, said: Tensor, language: str) -> Tensor:
        """Logits (T, B, pieces) of what comes after each piece of ``said`` (T, B)."""
        raise NotImplementedError

    def translate(self, source: Tensor, language: str, longest: int) -> Tensor:
        """The likeliest piece at each step, ``longest`` at most: (T, B), without BEGIN."""
        raise NotImplementedError

    def _look(self, embedding: nn.Module, pieces: Tensor) -> Tensor:
        """Vectors of pieces, as large as those of an ordinary embedding."""
        vectors: Tensor = embedding(pieces)
        return self.dropout(vectors * math.sqrt(vectors.shape[-1]))

    def _choose(self, wanted: Tensor, language: str) -> Tensor:
        """Logits of all pieces: those whose vectors are like what is wanted (..., embedding_size)."""
        vectors: Any = self.spoken[language].weight
        return F.linear(self.dropout(wanted), vectors, self.bias[language])


class RecurrentTranslator(Translator):
    r"""A core reads the sentence from left to right, another begins where it ended, and attends to what it put out.

    .. math::
        a_t = softmax_s(h_t W^a e_s), \quad r_t = \tanh(W^c [h_t, \sum_s a_{ts} e_s])

    with e_s what the encoder puts out at piece s and h_t the decoder at piece t, which has read the piece before
    (Luong et al., 2015, arXiv:1508.04025, "general"). The logit of a piece is r_t times its vector.
    """

    core: Core

    def __init__(self, core: Callable[[int], Core], embedding_size: int, **sizes: Any) -> None:
        """``core`` makes one that reads so many numbers."""
        super().__init__(embedding_size, **sizes)
        self.core = core(embedding_size)
        self.decoders = nn.ModuleDict({name: _Decoder(core(embedding_size), embedding_size) for name in self.spoken})

    def encode(self, source: Tensor) -> tuple[Tensor, State]:
        """What the encoder puts out (S, B, units), and its state at the end of each sentence."""
        there = source != PAD
        begins = there & ~F.pad(there, (0, 0, 1, 0))[:-1]  # before it, it has read nothing but padding
        output, state = self.core(self._look(self.embedding, source), None, begins.float())
        return output, state

    def forward(self, source: Tensor, said: Tensor, language: str) -> Tensor:
        read, state = self.encode(source)
        wanted, _, _ = self._decode(said, state, read, source == PAD, language)
        return self._choose(wanted, language)

    def translate(self, source: Tensor, language: str, longest: int) -> Tensor:
        return self.translate_and_show(source, language, longest)[0]

    def translate_and_show(self, source: Tensor, language: str, longest: int) -> tuple[Tensor, Tensor]:
        """The translation, and what the decoder attended to at each of its pieces (T, B, S)."""
        read, state = self.encode(source)
        piece, pieces, attended = torch.full_like(source[:1], BEGIN), [], []
        over = torch.zeros_like(piece, dtype=torch.bool)
        with weights_at_rest(self):
            for _ in range(longest):
                wanted, attention, state = self._decode(piece, state, read, source == PAD, language)
                piece = torch.where(over, PAD, self._choose(wanted, language).argmax(-1))
                pieces.append(piece)
                attended.append(attention)
                over = over | (piece == END)
                if over.all():
                    break
        return torch.cat(pieces), torch.cat(attended)

    def _decode(
        self, said: Tensor, state: State, read: Tensor, padding: Tensor, language: str
    ) -> tuple[Tensor, Tensor, State]:
        found: tuple[Tensor, Tensor, State] = self.decoders[language](
            self._look(self.spoken[language], said), state, read, padding
        )
        return found


class _Decoder(nn.Module):
    def __init__(self, core: Core, embedding_size: int) -> None:
        super().__init__()
        self.core = core
        self.align = nn.Linear(core.output_size, core.output_size, bias=False)
        self.combine = nn.Linear(2 * core.output_size, embedding_size)

    def forward(self, x: Tensor, state: State, read: Tensor, padding: Tensor) -> tuple[Tensor, Tensor, State]:
        """What to say (T, B, embedding_size), the attention (T, B, S), and the state, having read ``x`` (T, B, D)."""
        output, state = self.core(x, state)
        logits = torch.einsum("tbh,sbh->tbs", self.align(output), read)
        attention = logits.masked_fill(padding.T, -math.inf).softmax(-1)
        context = torch.einsum("tbs,sbh->tbh", attention, read)
        return torch.tanh(self.combine(torch.cat([output, context], -1))), attention, state


class TransformerTranslator(Translator):
    """torch's Transformer (Vaswani et al., 2017, arXiv:1706.03762), with layer norm before each part, so that it needs
    no warming up, and the same vectors of pieces as the others."""

    core: nn.TransformerEncoder

    def __init__(
        self, embedding_size: int, width: int, num_layers: int, options: Mapping[str, Any], **sizes: Any
    ) -> None:
        """``options``: ``heads`` (4), ``feedforward_size`` (4 times the width) and ``dropout`` (0)."""
        super().__init__(embedding_size, **sizes)
        known: dict[str, Any] = {"heads": 4, "feedforward_size": 4 * width, "dropout": 0.0}
        if strangers := options.keys() - known.keys():
            name = min(strangers)
            raise ValueError(
                f"core 'transformer' has no option {name!r} (value {options[name]!r}) in a translation; its options "
                f"are {', '.join(known)}"
            )
        heads, inside, dropout = {**known, **options}.values()
        if width % (step := math.lcm(heads, 2)):
            raise ValueError(f"hidden_size must be even and a multiple of heads={heads}, got {width}; {step} would do")
        self.width = width
        layer = nn.TransformerEncoderLayer(width, heads, inside, dropout, norm_first=True)
        self.core = nn.TransformerEncoder(layer, num_layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.read = nn.Linear(embedding_size, width)
        self.decoders, self.hear, self.say = nn.ModuleDict(), nn.ModuleDict(), nn.ModuleDict()
        for name in self.spoken:
            answer = nn.TransformerDecoderLayer(width, heads, inside, dropout, norm_first=True)
            self.decoders[name] = nn.TransformerDecoder(answer, num_layers, nn.LayerNorm(width))
            self.hear[name], self.say[name] = nn.Linear(embedding_size, width), nn.Linear(width, embedding_size)

    def encode(self, source: Tensor) -> Tensor:
        places = (source != PAD).cumsum(0) - 1
        x = self.read(self._look(self.embedding, source)) + sinusoids(places.clamp(min=0), self.width)
        read: Tensor = self.core(x, src_key_padding_mask=(source == PAD).T)
        return read

    def forward(self, source: Tensor, said: Tensor, language: str) -> Tensor:
        return self._choose(self._decode(said, self.encode(source), source, language), language)

    def translate(self, source: Tensor, language: str, longest: int) -> Tensor:
        read, said = self.encode(source), torch.full_like(source[:1], BEGIN)
        for _ in range(longest):
            wanted = self._decode(said, read, source, language)[-1:]
            over = ((said == END) | (said == PAD)).any(0)
            said = torch.cat([said, torch.where(over, PAD, self._choose(wanted, language).argmax(-1))])
            if ((said == END) | (said == PAD)).any(0).all():
                break
        return said[1:]

    def _decode(self, said: Tensor, read: Tensor, source: Tensor, language: str) -> Tensor:
        places = torch.arange(len(said), device=said.device).unsqueeze(1).expand_as(said)
        x = self.hear[language](self._look(self.spoken[language], said)) + sinusoids(places, self.width)
        later = torch.ones(len(said), len(said), dtype=torch.bool, device=said.device).triu(1)
        answer = self.decoders[language](x, read, tgt_mask=later, memory_key_padding_mask=(source == PAD).T)
        wanted: Tensor = self.say[language](answer)
        return wanted
