"""Two parallel corpora that every machine with Debian's package tool can fetch: what packages are described as, in
technical language, and what is said and told in the campaigns of the game Battle for Wesnoth.

All goes through apt, with folders of its own for what it downloads, so that it neither needs nor changes anything of
the system's.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rims_rl.common.errors import UserError

CAMPAIGNS = {
    "did", "dm", "dw", "ei", "httt", "l", "low", "nr", "sof", "sota", "sotbe", "thot", "trow", "tsg", "ttb", "utbs",
}  # fmt: skip
MO_MAGIC = 0x950412DE


def fetch_descriptions(source: str, targets: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Descriptions of packages, paragraph by paragraph, for each language."""
    _check_english("debian", source)
    with _Apt.private([source, *targets], packages=False) as apt:
        texts = {language: descriptions(text) for language, text in apt.translations().items()}
    return {
        target: _found("debian", target, paired(texts.get(source, {}), texts.get(target, {}))) for target in targets
    }


def fetch_dialogues(source: str, targets: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Sentences of Wesnoth's campaigns, for each language."""
    _check_english("wesnoth", source)
    found: dict[str, list[tuple[str, str]]] = {target: [] for target in targets}
    with _Apt.private([], packages=True) as apt:
        for package in apt.download(_campaigns(apt.names("wesnoth-"))):
            for target, catalog in _catalogs(package, targets):
                found[target] += dialogue(catalog)
    return {target: _found("wesnoth", target, pairs) for target, pairs in found.items()}


def descriptions(text: str) -> dict[str, list[str]]:
    """Of a file Translation-xx: checksum of the English description -> its title and its paragraphs."""
    found = {}
    for stanza in text.split("\n\n"):
        checksum = re.search(r"^Description-md5: (\w+)$", stanza, re.MULTILINE)
        described = re.search(r"^Description-(?!md5)\w+: (.*)((?:\n .*)*)", stanza, re.MULTILINE)
        if checksum and described:
            found[checksum[1]] = [described[1], *_paragraphs(described[2])]
    return found


def paired(english: dict[str, list[str]], other: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Titles, and paragraphs where both have as many of them. Descriptions are told by their checksum."""
    pairs: list[tuple[str, str]] = []
    for checksum, parts in sorted(english.items()):
        theirs = other.get(checksum, [])
        same = len(parts) if len(parts) == len(theirs) else min(1, len(theirs))
        pairs += zip(parts[:same], theirs[:same], strict=True)
    return [pair for pair in pairs if "<trans>" not in pair[1]]  # which stands for what nobody has translated


def _paragraphs(lines: str) -> list[str]:
    """A dot alone stands between them; a line with more than one space before it stands for itself."""
    parts: list[str] = []
    going_on = False
    for line in lines.splitlines():
        text = line.strip()
        if text in ("", "."):
            going_on = False
        elif going_on and not line.startswith("  "):
            parts[-1] += f" {text}"
        else:
            parts.append(text)
            going_on = not line.startswith("  ")
    return parts


def read_catalog(data: bytes) -> dict[str, str]:
    """Messages of a .mo file and their translations, as GNU gettext's manual describes the format."""
    for order in "<>":
        if len(data) >= 20 and struct.unpack_from(f"{order}I", data)[0] == MO_MAGIC:
            break
    else:
        raise ValueError("this is no .mo file")
    count, *tables = struct.unpack_from(f"{order}3I", data, 8)
    messages = []
    for table in tables:
        places = struct.iter_unpack(f"{order}2I", data[table : table + 8 * count])
        messages.append([data[start : start + length].decode("utf-8") for length, start in places])
    return dict(zip(*messages, strict=True))


def dialogue(catalog: dict[str, str]) -> list[tuple[str, str]]:
    """What is said or told in it: paragraphs that end like sentences. Names, forms of the plural, and texts with markup
    or with places for variables are left out."""
    pairs = []
    for message, translation in catalog.items():
        text = message.rpartition("\x04")[2].rpartition("^")[2]  # what is before says where it is used
        if not text or any(sign in message + translation for sign in "\0<$|"):
            continue
        parts = [[part.strip() for part in each.split("\n") if part.strip()] for each in (text, translation)]
        if len(parts[0]) == len(parts[1]):
            pairs += [pair for pair in zip(*parts, strict=True) if re.search(r"[.!?…][\"'”»“)]*$", pair[0])]
    return pairs


def _campaigns(names: Sequence[str]) -> list[str]:
    """The packages of the newest version that there is."""
    versions: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        found = re.fullmatch(r"wesnoth-(\d+(?:\.\d+)*)-(\w+)", name)
        if found and found[2] in CAMPAIGNS:
            versions.setdefault(tuple(map(int, found[1].split("."))), []).append(name)
    if not versions:
        raise UserError("apt knows no campaigns of wesnoth here; give another corpus, or sources of Debian or Ubuntu")
    return sorted(versions[max(versions)])


def _catalogs(package: Path, languages: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Those in a .deb file, of which nothing is unpacked onto the disk."""
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as archive,
    ):
        for member in archive:
            found = re.search(r"/(\w+)/LC_MESSAGES/wesnoth-\w+\.mo$", member.name)
            if found and found[1] in languages and (file := archive.extractfile(member)):
                yield found[1], read_catalog(file.read())


class _Apt:
    """apt with lists and a cache of its own, which are gone afterwards."""

    def __init__(self, folder: Path, languages: Sequence[str], packages: bool) -> None:
        self._folder, self._languages = folder, languages
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        words = " ".join(f'"{language}";' for language in languages or ["none"])
        (folder / "apt.conf").write_text(
            f'#clear Acquire::Languages;\nAcquire::Languages {{ {words} }};\nAcquire::GzipIndexes "false";\n'
            f'Acquire::IndexTargets::deb::Packages::DefaultEnabled "{str(packages).lower()}";\n'
            f'Dir::State::Lists "{folder}/lists";\nDir::Cache "{folder}/cache";\nAPT::Sandbox::User "";\n'
        )

    @classmethod
    @contextmanager
    def private(cls, languages: Sequence[str], packages: bool) -> Iterator[_Apt]:
        """With fresh lists of packages, or of translations into ``languages``."""
        for program in ("apt-get", "apt-cache", "dpkg-deb"):
            if shutil.which(program) is None:
                raise UserError(
                    f"debian and wesnoth are fetched with apt, and there is no {program} here; give parallel files of "
                    "your own as settings `train` and `test`, or wmt and iwslt"
                )
        with tempfile.TemporaryDirectory(prefix="rims-rl-apt-") as folder:
            apt = cls(Path(folder), languages, packages)
            apt._run("apt-get", "update", "--error-on=any")
            yield apt

    def translations(self) -> dict[str, str]:
        """Language -> all that the files Translation-xx say."""
        listed = self._run("apt-get", "indextargets", "Created-By: Translations", "--format", "$(LANGUAGE) $(FILENAME)")
        texts = dict.fromkeys(self._languages, "")
        for language, path in (line.split(maxsplit=1) for line in listed.splitlines()):
            texts[language] += Path(path).read_text("utf-8") + "\n\n"
        return texts

    def names(self, beginning: str) -> list[str]:
        return self._run("apt-cache", "pkgnames", beginning).split()

    def download(self, packages: Sequence[str]) -> list[Path]:
        self._run("apt-get", "download", *packages)
        return sorted(self._folder.glob("*.deb"))

    def _run(self, program: str, *arguments: str) -> str:
        command = [program, "-qq", "-c", str(self._folder / "apt.conf"), *arguments]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("E: ")] or ["it says nothing"]
            raise UserError(
                f"`{program} {arguments[0]}` failed ({said[0].removeprefix('E: ')}); see whether apt works here"
            )
        return done.stdout


def _check_english(name: str, source: str) -> None:
    if source != "en":
        raise UserError(f"{name} is translated from en only, got `source` {source!r}")


def _found(name: str, target: str, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    if not pairs:
        raise UserError(f"{name} has no translations from en into {target!r}; de and fr are among those it has")
    return pairs
