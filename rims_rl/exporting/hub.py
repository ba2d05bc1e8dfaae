"""Sharing a run: the folder that the Hugging Face hub expects, sending it there, and pulling what others have shared.

What is pulled is one safetensors file, in which the description of the policy is JSON: reading it runs nothing.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rims_rl.agents.saved.policy_files import load_policy, round_weights, save_shared
from rims_rl.common.errors import UserError
from rims_rl.common.options import Count, Options
from rims_rl.envs.watch import NotShown
from rims_rl.evaluation.evaluate import EvaluateOptions, evaluate
from rims_rl.exporting.card import add_to_card, check_card
from rims_rl.exporting.export import ExportOptions, export
from rims_rl.inspect.enjoy import EnjoyOptions, enjoy
from rims_rl.runs.folder import read_arguments

log = logging.getLogger(__name__)

HUB = "hf:"  # how names of the hub begin
POLICY = "policy.safetensors"
VIDEO = "replay.mp4"  # the hub shows a video of this name
VIDEO_STEPS = 1000


class ShareOptions(Options):
    run: Path
    out: Path  # the folder to make, or to renew
    push: str | None = None  # owner/name on the hub; None: nothing leaves this machine
    private: bool = False
    video: bool = True
    small: bool = False  # weights in 16 bits, evaluated with them, and no ONNX
    episodes: Count = 100  # of that evaluation
    check_steps: Count = 500  # of each exported file, see ExportOptions
    progress: bool = False


@dataclass(frozen=True)
class ShareResult:
    folder: Path
    files: list[str]
    url: str | None = None  # where it was sent to


def share(options: ShareOptions) -> ShareResult:
    """Write safetensors, ONNX with its runtime, settings, a video and a card; and send them if ``push`` says where."""
    folder = options.out
    if options.push is not None:
        _check_name(options.push)
        _hub()
    _, config = read_arguments(options.run)
    check_card(folder)
    with _rounded(options) if options.small else nullcontext(options.run) as run:
        common: dict[str, Any] = {"run": run, "check_steps": options.check_steps, "progress": options.progress}
        weights = ExportOptions(format="safetensors", out=folder / POLICY, card=options.small, **common)
        exported = [export(weights)]
        if not options.small:
            exported.append(export(ExportOptions(out=folder / f"{config.parent.name}.onnx", card=True, **common)))
        files = [file for each in exported for file in (each.file, each.runtime, each.card)]
        files.append(shutil.copyfile(config, folder / "config.yml"))
        if (run / "evaluation.json").exists():
            files.append(shutil.copyfile(run / "evaluation.json", folder / "results.json"))
        if options.video:
            watch = EnjoyOptions(run=run, out=folder / VIDEO, max_steps=VIDEO_STEPS, progress=options.progress)
            try:
                files.append(enjoy(watch).video)
            except NotShown as error:
                log.info(f"there will be no video: {error}")
    add_to_card(folder, options.push, options.small)
    names = sorted(file.name for file in files if file is not None)
    return ShareResult(folder, names, None if options.push is None else _push(options, names))


@contextmanager
def _rounded(options: ShareOptions) -> Iterator[Path]:
    """A folder with the policy of the run in 16 bits, and how well that one plays."""
    with TemporaryDirectory() as temporary:
        run = Path(temporary) / options.run.name
        policy, description = load_policy(options.run)
        round_weights(policy)
        save_shared(policy, run / POLICY, description)
        evaluate(EvaluateOptions(run=run, episodes=options.episodes, progress=options.progress))
        yield run


def pull(name: str, logdir: Path = Path("logs")) -> Path:
    """The policy that was shared as ``owner/name``, with ``@revision`` if need be, in ``<logdir>/hf/<name>``, which is
    used like the folder of a run."""
    name = name.removeprefix(HUB)
    repository, _, revision = name.partition("@")
    _check_name(repository)
    hub, folder = _hub(), logdir / "hf" / name

    def fetch() -> None:
        hub.hf_hub_download(repository, POLICY, revision=revision or None, local_dir=folder)

    _asked(fetch, f"{HUB}{name}", POLICY)
    return folder


def _push(options: ShareOptions, names: list[str]) -> str:
    hub, name = _hub(), str(options.push)

    def send() -> str:
        api = hub.HfApi()
        url = api.create_repo(name, private=options.private, exist_ok=True)
        api.upload_folder(
            folder_path=options.out, repo_id=name, allow_patterns=names, commit_message="Shared by rims-rl"
        )
        return str(url)

    return str(_asked(send, name, "it"))


def _asked(ask: Callable[[], Any], name: str, what: str) -> Any:
    try:
        return ask()
    except UserError:
        raise
    except Exception as error:  # of the network, of the hub, of its library
        text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UserError(
            f"{what} of {name} was not moved: {type(error).__name__}: {text}; is the name right, and are you logged in "
            "(`hf auth login`) where that is needed?"
        ) from error


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise UserError(f"a name of the hub is owner/name, got {name!r}")


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise UserError(
            "the hub needs huggingface_hub, which is not installed; run: pip install 'rims-rl[hub]'"
        ) from None
    return huggingface_hub
