"""The corpora of the paper's translation: WMT to train on (speeches and news), IWSLT to test on (talks)."""

from __future__ import annotations

import hashlib
import logging
import tarfile
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from rims_rl.common.errors import UserError

log = logging.getLogger(__name__)

URL = "https://www.statmt.org/"
ARCHIVES = {  # of WMT 14, the speeches of the European Parliament and the news: what is in it, and its SHA-256
    "wmt13/training-parallel-europarl-v7.tgz": (
        "europarl-v7", "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    "wmt14/training-parallel-nc-v9.tgz": (
        "news-commentary-v9", "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    ),
}  # fmt: skip
WMT_LANGUAGES = ("de", "fr")  # into which the paper translates
BLOCK = 2**20  # bytes
SAY_EVERY = 100 * BLOCK


def fetch_wmt(source: str, targets: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Sentences of speeches and news, for each language."""
    if source != "en" or (strangers := [target for target in targets if target not in WMT_LANGUAGES]):
        other = f"{source}-{strangers[0] if source == 'en' else targets[0]}"
        raise UserError(
            f"wmt has en-{' and en-'.join(WMT_LANGUAGES)} here, got {other}; give parallel files of your own"
        )
    found: dict[str, list[tuple[str, str]]] = {target: [] for target in targets}
    for address, (name, checksum) in ARCHIVES.items():
        with tempfile.TemporaryDirectory(prefix="rims-rl-wmt-") as folder:
            archive = _download(address, checksum, Path(folder))
            for target in targets:
                found[target] += _members(archive, [f"{name}.{target}-en.{language}" for language in ("en", target)])
    return found


def fetch_iwslt(source: str, targets: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """The talks of IWSLT 2017's test, for each language, as sacrebleu downloads and checks them."""
    from sacrebleu.dataset import DATASETS

    talks, found = DATASETS["iwslt17"], {}
    for target in targets:
        pair = f"{source}-{target}"
        if pair not in talks.langpairs:
            raise UserError(f"iwslt has no {pair}; it has {', '.join(sorted(talks.langpairs))}")
        try:
            files = [talks.get_source_file(pair), talks.get_reference_files(pair)[0]]
            found[target] = list(zip(*(Path(file).read_text("utf-8").split("\n") for file in files), strict=True))
        except (OSError, SystemExit) as error:  # with the latter it ends when a checksum is wrong
            reason = getattr(error, "reason", error) if isinstance(error, OSError) else "its checksum is wrong"
            raise UserError(
                f"IWSLT cannot be downloaded by sacrebleu ({reason}); give parallel files of your own, or "
                "remove what sacrebleu keeps of iwslt17 and try again"
            ) from error
    return found


def _download(address: str, checksum: str, folder: Path) -> Path:
    path, found = folder / "archive.tgz", hashlib.sha256()
    try:
        with urllib.request.urlopen(f"{URL}{address}", timeout=60) as answer, path.open("wb") as file:
            size = int(answer.headers.get("Content-Length") or 0)
            while block := answer.read(BLOCK):
                found.update(block)
                file.write(block)
                if file.tell() % SAY_EVERY == 0:
                    log.info(f"{address}: {file.tell() // BLOCK} of {size // BLOCK} MB")
    except OSError as error:
        raise UserError(
            f"{URL}{address} cannot be downloaded ({getattr(error, 'reason', error)}); give parallel files of your own "
            "as `train` of the settings, or debian where there is apt"
        ) from error
    if found.hexdigest() != checksum:
        raise UserError(f"{URL}{address} is not what it was, or is damaged: its checksum is wrong; try again")
    return path


def _members(archive: Path, names: Sequence[str]) -> list[tuple[str, str]]:
    """The lines of two files in it, wherever they are."""
    texts = {}
    with tarfile.open(archive) as files:
        for member in files:
            if (name := Path(member.name).name) in names and (file := files.extractfile(member)):
                texts[name] = file.read().decode("utf-8").split("\n")
    return list(zip(*(texts[name] for name in names), strict=True))
