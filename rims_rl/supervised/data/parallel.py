"""Parallel corpora by name: two files with a language each, whose lines are translations of each other.

::

    <beginning>.en, <beginning>.de                 of the user's
    <beginning>.en-de.en, <beginning>.en-de.de     if English is not the same for every language

What is fetched by name is kept in the second form, in the user's cache or in ``data_dir``.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing
from rims_rl.supervised.data.debian import fetch_descriptions, fetch_dialogues
from rims_rl.supervised.data.wmt import fetch_iwslt, fetch_wmt

log = logging.getLogger(__name__)

Pair = tuple[str, str]
FETCHED: dict[str, Callable[[str, Sequence[str]], dict[str, list[Pair]]]] = {
    "debian": fetch_descriptions, "wesnoth": fetch_dialogues, "iwslt": fetch_iwslt, "wmt": fetch_wmt,
}  # from what is fetched in seconds to what takes long # fmt: skip
HELD_OUT = 20  # one sentence of so many is kept from training


class Corpus(NamedTuple):
    """Sentences, and their translations in the same order."""

    source: list[str]
    target: list[str]

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        text = "\n".join([*self.source, "", *self.target])
        return hashlib.sha256(text.encode()).hexdigest()


def read_corpora(name: str, source: str, targets: Sequence[str], folder: Path | None = None) -> dict[str, Corpus]:
    """The corpus ``name``, or the one whose files begin like that, for each of the languages ``targets``.

    Raises:
        UserError: there is none for a language, it cannot be fetched, or its files are of unequal length.
    """
    if name not in FETCHED:
        return {target: _read(*_files(name, source, target)) for target in targets}
    place = place_of(folder)
    missing = [target for target in targets if not all(path.exists() for path in _kept(place, name, source, target))]
    if missing:
        log.info(f"fetching {name} for {source}-{f', {source}-'.join(missing)}; it is kept in {place}")
        for target, pairs in FETCHED[name](source, missing).items():
            paths = _kept(place, name, source, target)
            for path, lines in zip(reversed(paths), reversed(list(zip(*pairs, strict=True))), strict=True):
                with replacing(path) as temporary:
                    temporary.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return {target: _read(*_kept(place, name, source, target)) for target in targets}


def place_of(folder: Path | None) -> Path:
    """Where what is fetched is kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return folder or Path(cache) / "rims-rl" / "translation"


def clean(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Without sentences that are empty, that came before, that are left as they were, or that cannot be translations
    of each other: one has more than three times as many words as the other, and three more."""
    seen = set()
    for source, target in pairs:
        source, target = (" ".join(text.split()) for text in (source, target))
        counts = sorted(len(text.split()) for text in (source, target))
        if counts[0] == 0 or source == target or source in seen or counts[1] > 3 * counts[0] + 3:
            continue
        seen.add(source)
        yield source, target


def split(corpus: Corpus) -> tuple[Corpus, Corpus]:
    """What is for training, and what is held out: which of the two a sentence is follows from its own text alone, so
    that it is the same in every language."""
    parts: tuple[list[Pair], list[Pair]] = ([], [])
    for pair in clean(zip(*corpus, strict=True)):
        parts[_number(pair[0]) % HELD_OUT == 0].append(pair)
    training, held_out = (Corpus([a for a, _ in pairs], [b for _, b in pairs]) for pairs in parts)
    return training, held_out


def shuffled(corpus: Corpus) -> Corpus:
    """In an order that follows from the sentences alone, so that the first few are from all over it."""
    pairs = sorted(zip(*corpus, strict=True), key=lambda pair: _number(pair[0]))
    return Corpus([a for a, _ in pairs], [b for _, b in pairs])


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _kept(place: Path, name: str, source: str, target: str) -> tuple[Path, Path]:
    return place / f"{name}.{source}-{target}.{source}", place / f"{name}.{source}-{target}.{target}"


def _files(name: str, source: str, target: str) -> tuple[Path, Path]:
    """Of the user's."""
    ways = [
        tuple(Path(f"{name}{between}.{each}") for each in (source, target)) for between in ("", f".{source}-{target}")
    ]
    for first, second in ways:
        if first.exists() and second.exists():
            return first, second
    missing = [str(path) for path in ways[0] if not path.exists()]
    raise UserError(
        f"there is no {' and no '.join(missing)}; a corpus is {', '.join(FETCHED)}, or how the names of two parallel "
        f"files begin, such as talks for talks.{source} and talks.{target}"
    )


def _read(first: Path, second: Path) -> Corpus:
    source, target = (_lines(path) for path in (first, second))
    if len(source) != len(target):
        raise UserError(
            f"{first} has {len(source):,} lines and {second} has {len(target):,}; each line must be the translation of "
            "the line with the same number in the other file"
        )
    if not source:
        raise UserError(f"{first} and {second} are empty; give sentences, one a line")
    return Corpus(source, target)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").removesuffix("\n").split("\n") if path.stat().st_size else []
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise UserError(f"{path} cannot be read ({reason}); give text, one sentence a line") from error
