"""Words in pieces: a vocabulary of subwords for each language, and sentences as numbers."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing

PAD, UNKNOWN, BEGIN, END = range(4)
READ = 1_000_000  # sentences that a vocabulary is made of, at most


class Sentences:
    """Sentences as numbers, in one array, since there may be millions of them."""

    def __init__(self, sentences: Iterable[Sequence[int]]) -> None:
        parts = [np.asarray(sentence, np.int32) for sentence in sentences]
        self.lengths = np.array([len(part) for part in parts], np.int64)
        self._values = np.concatenate([np.zeros(0, np.int32), *parts])
        self._ends = self.lengths.cumsum()

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> np.ndarray:
        end = self._ends[index]
        return self._values[end - self.lengths[index] : end]

    def sources(self, chosen: Iterable[int]) -> Tensor:
        """What an encoder reads (T, B): sentences with END, and padded in front, so that all end at the last step."""
        return self._padded([[*self[index], END] for index in chosen], in_front=True)

    def targets(self, chosen: Iterable[int]) -> Tensor:
        """What a decoder is to say (T, B): sentences between BEGIN and END, and padded behind."""
        return self._padded([[BEGIN, *self[index], END] for index in chosen], in_front=False)

    @staticmethod
    def _padded(rows: list[list[int]], in_front: bool) -> Tensor:
        longest = max(map(len, rows))
        found = torch.full((longest, len(rows)), PAD)
        for number, row in enumerate(rows):
            begin = longest - len(row) if in_front else 0
            found[begin : begin + len(row), number] = torch.tensor(row)
        return found


class Subwords:
    """The pieces of one language."""

    def __init__(self, model: bytes) -> None:
        from sentencepiece import SentencePieceProcessor

        self._pieces: Any = SentencePieceProcessor(model_proto=model)

    def __len__(self) -> int:
        size: int = self._pieces.get_piece_size()
        return size

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        found: list[list[int]] = self._pieces.encode(list(texts))
        return found

    def decode(self, sentence: Iterable[int]) -> str:
        """The text of what is before END."""
        numbers = list(sentence)
        if END in numbers:
            numbers = numbers[: numbers.index(END)]
        text: str = self._pieces.decode([number for number in numbers if number not in (PAD, BEGIN)])
        return text

    def words(self, sentence: Iterable[int]) -> list[str]:
        """Each piece by itself, with a mark where a word begins."""
        return [self._pieces.id_to_piece(int(number)) for number in sentence]


def learned_subwords(texts: Sequence[str], size: int, place: Path) -> Subwords:
    """A vocabulary of at most ``size`` pieces made of ``texts`` by byte-pair encoding, kept as a file in ``place``."""
    from sentencepiece import SentencePieceTrainer

    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
    path = place / f"{digest}_{size}.model"
    if not path.exists():
        model = io.BytesIO()
        try:
            SentencePieceTrainer.train(
                sentence_iterator=iter(texts), model_writer=model, model_type="bpe", vocab_size=size,
                hard_vocab_limit=False, character_coverage=0.9995, input_sentence_size=READ, num_threads=1,
                pad_id=PAD, unk_id=UNKNOWN, bos_id=BEGIN, eos_id=END, minloglevel=2,
            )  # fmt: skip
        except RuntimeError as error:
            raise UserError(
                f"a vocabulary of {size} pieces cannot be made of {len(texts):,} sentences "
                f"({str(error).splitlines()[-1]}); choose another `vocabulary`, or give more text"
            ) from error
        with replacing(path) as temporary:
            temporary.write_bytes(model.getvalue())
    return Subwords(path.read_bytes())
