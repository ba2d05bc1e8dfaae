"""Translation: sentences of one domain to learn from, sentences of another to be tested on (appendix F)."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from rims_rl.common.errors import UserError
from rims_rl.config.fields import Count
from rims_rl.core import RIM
from rims_rl.supervised.data.parallel import FETCHED, Corpus, clean, place_of, read_corpora, shuffled, split
from rims_rl.supervised.data.subwords import PAD, Sentences, Subwords, learned_subwords
from rims_rl.supervised.task import TRAINING, Task, TaskConfig, Tests, generator
from rims_rl.supervised.translators import RecurrentTranslator, TransformerTranslator, Translator

Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}(_[A-Z]{2})?$")]
POOL = 32  # batches whose sentences are sorted by length, so that few are padded much
SHOWN, SHOWN_PIECES = 2, 14  # sentences of each test in the pictures, and how many pieces they have at most
# Shown in their place where a corpus is somebody else's, so that nothing of it is in results that are published.
OURS = {
    "same": ["a small program to read mail on a server", "tools to draw maps and to print them"],
    "other": ["Hide behind the hill, and wait for me.", "I have never seen a dragon as old as you."],
}


class TranslationConfig(TaskConfig):
    source: Language
    languages: Annotated[list[Language], Field(min_length=1)]  # to translate into, each with a decoder of its own
    train: Annotated[str, Field(min_length=1)]  # a corpus by name, or how the names of its files begin
    test: Annotated[str, Field(min_length=1)]
    vocabulary: Annotated[int, Field(ge=10, le=100_000)]  # pieces of each language, at most
    longest: Annotated[int, Field(ge=2)]  # pieces of a sentence; pairs with longer ones are left out, in tests too
    embedding_size: Count


class Translation(Task):
    """BLEU of greedy translations, and cross entropy per piece, on sentences of the domain of training that were held
    out, and on sentences of the other domain."""

    name: ClassVar[str] = "translation"
    title: ClassVar[str] = "Translation: sentences of another domain"
    config_class: ClassVar[type[TaskConfig]] = TranslationConfig
    bounded: ClassVar[dict[str, float]] = {"BLEU": 100.0}
    counted: ClassVar[str] = "all"
    data_settings: ClassVar[tuple[str, ...]] = ("source", "train", "test", "vocabulary", "longest")
    compared_at: ClassVar[str] = "languages"  # widths are such that cores have about as many parameters
    config: TranslationConfig

    def check(self) -> None:
        config = self.config
        for package in ("sentencepiece", "sacrebleu"):
            if find_spec(package) is None:
                raise UserError(
                    f"translation needs {package}, which is not installed; run: pip install 'rims-rl[translation]'"
                )
        if len(set(config.languages)) < len(config.languages) or config.source in config.languages:
            raise UserError(
                f"`languages` must be different ones, and not `source` {config.source!r}, got {config.languages}"
            )
        with torch.random.fork_rng(devices=[]):
            self._translator(4, dict.fromkeys(config.languages, 4))

    def network(self) -> nn.Module:
        self.check()
        data, size = self._data, self.config.batch_size
        fewest = min(len(pairs.source) for pairs in data.training.values())
        if size > fewest:
            raise UserError(f"batch_size must be at most {fewest}, all sentences of training, got {size}")
        targets = {language: len(data.subwords[language]) for language in self.config.languages}
        return self._translator(len(data.subwords[self.config.source]), targets)

    def batch(self, seed: int, index: int) -> tuple[Tensor, ...]:
        """Source and target for each language, one after the other: a batch of each, so that more languages do not
        mean fewer sentences of the first."""
        found: list[Tensor] = []
        for number, pairs in enumerate(self._data.training.values()):
            rows = batch_rows(
                pairs.source.lengths + pairs.target.lengths, self.config.batch_size, (seed, number), index
            )
            found += [pairs.source.sources(rows), pairs.target.targets(rows)]
        return tuple(found)

    def loss(self, network: nn.Module, *batch: Tensor) -> Tensor:
        """Mean over languages of the cross entropy per piece."""
        languages = zip(self.config.languages, batch[::2], batch[1::2], strict=True)
        losses = [_cross_entropy(network, source, target, language, "mean") for language, source, target in languages]
        return torch.stack(losses).mean()

    def tests(self, network: nn.Module, sequences_of_each: int) -> Tests:
        found = {}
        for language in self.config.languages:
            for domain, pairs in self._data.tests[language].items():
                name = f"{self.config.source}-{language}, {domain} domain"
                found[name] = self._measure(network, pairs, language, sequences_of_each)
        return found

    def record(self, network: nn.Module) -> dict[str, Any]:
        """What was read, and a few translations with what was attended to, of sentences that are always the same."""
        language, longest = self.config.languages[0], 2 * self.config.longest
        texts, attended = [], []
        for domain in self._data.tests[language]:
            shown = self._shown(domain)
            sources = Sentences(self._data.subwords[self.config.source].encode([text["source"] for text in shown]))
            for row, text in enumerate(shown):
                said = self._texts(network, sources.sources([row]), language)[0]
                texts.append({**text, "domain": domain, "translation": said})
            if isinstance(network, RecurrentTranslator) and shown:
                source = sources.sources([0])
                traced = traced_translation(network, source, language, longest)
                read = self._data.subwords[self.config.source].words(source[:, 0].tolist())
                pieces = self._data.subwords[language].words(traced.pop("said"))
                attended.append({"domain": domain, "source": read, "said": pieces, **traced})
        return {"corpora": self._data.facts, "translations": texts, **({"attention": attended} if attended else {})}

    def _shown(self, domain: str) -> list[dict[str, str]]:
        """Sentences to look at; with a translation, if they are of the user's own files."""
        if self.config.source == "en" and {self.config.train, self.config.test} <= set(FETCHED):
            return [{"source": text} for text in OURS[domain]]
        pairs = self._data.tests[self.config.languages[0]][domain]
        short = [row for row, length in enumerate(pairs.source.lengths) if 4 <= length <= SHOWN_PIECES][:SHOWN]
        return [{"source": pairs.texts.source[row], "reference": pairs.texts.target[row]} for row in short]

    def _measure(self, network: nn.Module, pairs: Pairs, language: str, count: int) -> dict[str, float]:
        rows = torch.arange(min(count, len(pairs.source)))
        loss, pieces, said = 0.0, 0, []
        for part in rows.split(self.config.batch_size):
            source, target = pairs.source.sources(part.tolist()), pairs.target.targets(part.tolist())
            loss += _cross_entropy(network, source, target, language, "sum").item()
            pieces += int((target[1:] != PAD).sum())
            said += self._texts(network, source, language)
        return {"cross entropy": loss / pieces, "BLEU": bleu(said, pairs.texts.target[: len(rows)])}

    def _texts(self, network: nn.Module, source: Tensor, language: str) -> list[str]:
        assert isinstance(network, Translator)
        translations = network.translate(source, language, 2 * self.config.longest)
        return [self._data.subwords[language].decode(sentence) for sentence in translations.T.tolist()]

    def _translator(self, source: int, targets: dict[str, int]) -> Translator:
        """With so many pieces of each language."""
        config = self.config
        sizes: dict[str, Any] = {
            "embedding_size": config.embedding_size, "source": source, "dropout": config.dropout, "targets": targets,
        }  # fmt: skip
        if config.core != "transformer":
            return RecurrentTranslator(self.core, **sizes)
        try:
            return TransformerTranslator(
                width=config.hidden_size, num_layers=config.num_layers, options=config.core_kwargs, **sizes
            )
        except ValueError as error:
            raise UserError(str(error)) from error

    @property
    def _data(self) -> Data:
        config = self.config
        return _read_data(
            config.source, tuple(config.languages), (config.train, config.test), config.vocabulary, config.longest,
            self.data_dir,
        )  # fmt: skip


class Pairs(NamedTuple):
    """Sentences and translations, as numbers, and for tests as text."""

    source: Sentences
    target: Sentences
    texts: Corpus


class Data(NamedTuple):
    subwords: dict[str, Subwords]  # of each language
    training: dict[str, Pairs]  # by language
    tests: dict[str, dict[str, Pairs]]  # language -> "same" or "other" domain
    facts: dict[str, Any]  # for the page, plain


@cache
def _read_data(
    source: str, languages: tuple[str, ...], names: tuple[str, str], vocabulary: int, longest: int, folder: Path | None
) -> Data:
    order = [name for name in names if name not in FETCHED] + [name for name in FETCHED if name in names]
    corpora = {name: read_corpora(name, source, languages, folder) for name in order}  # the quickest first
    train, test = (corpora[name] for name in names)
    parts = {language: split(corpus) for language, corpus in train.items()}
    # of the first language's sentences alone, so that these are the same, and as long, whatever languages come beside
    texts = {source: parts[languages[0]][0].source}
    texts |= {language: part.target for language, (part, _) in parts.items()}
    place = place_of(folder) / "subwords"
    subwords = {language: learned_subwords(each, vocabulary, place) for language, each in texts.items()}

    def pairs(corpus: Corpus, language: str) -> Pairs:
        return _encoded(corpus, subwords[source], subwords[language], longest)

    data = Data(subwords, {}, {}, {})
    for language, (part, held_out) in parts.items():
        other = Corpus(*map(list, zip(*clean(zip(*test[language], strict=True)), strict=True)))
        data.training[language] = pairs(part, language)
        data.tests[language] = {"same": pairs(shuffled(held_out), language), "other": pairs(shuffled(other), language)}
        counts = {"training": data.training[language], **data.tests[language]}
        if empty := [name for name, each in counts.items() if not len(each.source)]:
            raise UserError(
                f"{source}-{language} of {names[empty[0] == 'other']} has no sentences of at most {longest} pieces "
                f"for {empty[0]}; give more text, or a larger `longest`"
            )
        data.facts[f"{source}-{language}"] = {
            "sentences": {name: len(each.source) for name, each in counts.items()},
            "sha256": {names[0]: train[language].digest, names[1]: test[language].digest},
        }
    return data


def _encoded(corpus: Corpus, source: Subwords, target: Subwords, longest: int) -> Pairs:
    """Without the pairs that have a sentence of more than ``longest`` pieces."""
    both = zip(source.encode(corpus.source), target.encode(corpus.target), *corpus, strict=True)
    kept = [each for each in both if max(len(each[0]), len(each[1])) <= longest]
    first, second, text, translation = map(list, zip(*kept, strict=True)) if kept else ([], [], [], [])
    return Pairs(Sentences(first), Sentences(second), Corpus(text, translation))


def batch_rows(lengths: Any, size: int, seed: tuple[int, ...], index: int) -> list[int]:
    """Which sentences batch number ``index`` has: in every epoch each one once, but for the last few, beside others of
    about their length."""
    epoch, number = divmod(index, len(lengths) // size)
    order = torch.randperm(len(lengths), generator=generator(TRAINING, *seed, epoch))
    order = order[: len(lengths) // size * size]
    pool, number = divmod(number, POOL)
    rows = order[pool * POOL * size : (pool + 1) * POOL * size]
    rows = rows[torch.from_numpy(lengths[rows.numpy()]).argsort(stable=True)]
    shuffled = torch.randperm(len(rows) // size, generator=generator(TRAINING, *seed, epoch, pool))
    found: list[int] = rows.view(-1, size)[shuffled[number]].tolist()
    return found


def bleu(said: list[str], wanted: list[str]) -> float:
    """Of a whole test, by sacrebleu with its own tokens."""
    import sacrebleu

    score: float = sacrebleu.corpus_bleu(said, [wanted]).score
    return score


def _cross_entropy(network: nn.Module, source: Tensor, target: Tensor, language: str, reduction: str) -> Tensor:
    logits = network(source, target[:-1], language)
    return F.cross_entropy(logits.flatten(0, 1), target[1:].flatten(), ignore_index=PAD, reduction=reduction)


def traced_translation(network: RecurrentTranslator, source: Tensor, language: str, longest: int) -> dict[str, Any]:
    """The first sentence's translation, the decoder's attention, and, of RIMs, what each read of every piece, and when
    each was active; numbers of two digits, since they are for pictures."""
    decoder: Any = network.decoders[language].core
    if not (isinstance(network.core, RIM) and isinstance(decoder, RIM)):
        said, attention = network.translate_and_show(source, language, longest)
        return {"said": said[:, 0].tolist(), "attention": _short(attention[:, 0])}
    with network.core.trace() as reading, decoder.trace() as speaking:
        said, attention = network.translate_and_show(source, language, longest)
    read = reading.input_attention[:, 0, :, :-1].sum(-1) * reading.active[:, 0]  # (S, K): on anything but null
    return {
        "said": said[:, 0].tolist(),
        "attention": _short(attention[:, 0]),
        "read": _short(read.T),
        "reading": _digits(reading.active),
        "speaking": _digits(speaking.active),
    }


def _short(numbers: Tensor) -> list[list[float]]:
    return [[round(number, 2) for number in row] for row in numbers.tolist()]


def _digits(active: Tensor) -> list[str]:
    """A row of 0 and 1 for each RIM of the first sentence."""
    return ["".join(map(str, rim)) for rim in active[:, 0].int().T.tolist()]
