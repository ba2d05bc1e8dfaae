"""Model cards: a Markdown page about an exported policy, in the form that the Hugging Face hub has for RL agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from rims_rl.agents.saved.description import ExportedDescription
from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing
from rims_rl.common.words import count_of, decimals, mean_in_words

LIBRARY = "library_name: rims-rl"


def check_card(folder: Path) -> None:
    """The hub wants the name README.md: a UserError if somebody else's is there."""
    card = folder / "README.md"
    if card.exists() and LIBRARY not in card.read_text():
        raise UserError(f"{card} is not a model card of rims-rl and would be lost; choose another folder with `out`")


def write_card(file: Path, description: ExportedDescription) -> Path:
    """Write ``README.md`` beside the exported ``file``, and return its path."""
    check_card(file.parent)
    card = file.with_name("README.md")
    front = yaml.safe_dump(_front_matter(description), sort_keys=False)
    with replacing(card) as temporary:
        temporary.write_text(f"---\n{front}---\n\n{_page(file, description)}")
    return card


def _front_matter(description: ExportedDescription) -> dict[str, Any]:
    name, value = LIBRARY.split(": ")
    data: dict[str, Any] = {
        name: value,
        "tags": [description.env, "deep-reinforcement-learning", "reinforcement-learning", "rims-rl"],
    }
    if score := description.score:
        result = {
            "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
            "dataset": {"name": description.env, "type": description.env},
            "metrics": [
                {
                    "type": "mean_reward",
                    "value": f"{score.mean:.2f} +/- {score.std:.2f}",
                    "name": "mean_reward",
                    "verified": False,
                }
            ],
        }
        data["model-index"] = [{"name": _algorithm(description), "results": [result]}]
    return data


def _page(file: Path, description: ExportedDescription) -> str:
    kwargs = description.given_policy_kwargs()
    sizes = ", ".join(f"{key} {kwargs[key]}" for key in ("num_rims", "num_active", "rim_size") if key in kwargs)
    trained = f"{description.steps:,} steps" if description.steps else "an unknown number of steps"
    page = (
        f"# {_algorithm(description)} on {description.env}\n\n"
        f"A `{description.policy}` with the core `{description.policy_kwargs.core}` ({sizes}), trained with "
        f"{_algorithm(description)} on `{description.env}` for {trained} by rims-rl.\n\n## Score\n\n"
    )
    if score := description.score:
        mean = mean_in_words(score.mean, score.mean_95, score.median)
        page += (
            f"{mean[0].upper()}{mean[1:]}, standard deviation {score.std:.{decimals(score.mean)}f}, over "
            f"{count_of(score.episodes, 'episode')} with "
            f"{'most likely' if score.deterministic else 'sampled'} actions, one training run. "
            "Written by `rims-rl evaluate`.\n\n"
        )
    else:
        page += "Not evaluated.\n\n"
    page += "## How to run it\n\n"
    if file.suffix == ".onnx":
        page += (
            "With numpy and onnxruntime alone (`pip install numpy onnxruntime`), and `rims_runtime.py` beside it:\n\n"
            "```python\nfrom rims_runtime import load\n\n"
            f'agent = load("{file.name}")\naction = agent.act(observation, episode_start)\n```\n'
        )
    elif file.suffix == ".safetensors":
        page += f"```sh\nrims-rl evaluate {file.name}\n```\n\nWeights and JSON: loading the file runs no code.\n"
    else:
        page += (
            "```python\nfrom rims_rl.exporting.export import load_compiled\n\n"
            f'step = load_compiled("{file.name}", trust=True)  # native code: only from people you trust\n```\n'
        )
    names = ("rims_rl", "commit", "torch", "numpy")
    versions = ", ".join(f"{name} {version}" for name in names if (version := getattr(description, name)))
    return page + f"\nExported {description.date} with {versions}.\n"


def _algorithm(description: ExportedDescription) -> str:
    return {"ppo": "RecurrentPPO", "a2c": "RecurrentA2C"}.get(description.algo or "", "an unknown algorithm")


def add_to_card(folder: Path, name: str | None, rounded: bool) -> None:
    """What else is in a folder that is shared, as ``name``."""
    card = folder / "README.md"
    size = "Its weights were rounded to 16 bits (float16), and then its score was measured. " if rounded else ""
    source = f"hf:{name}" if name else "policy.safetensors"
    more = (
        "\n## Where rims-rl is installed\n\n"
        f"```sh\nrims-rl evaluate {source}\nrims-rl enjoy {source}\n```\n\n{size}"
        "`policy.safetensors` holds weights and JSON, `config.yml` the settings of the training: reading them runs no "
        "code.\n"
    )
    text = card.read_text()
    with replacing(card) as temporary:
        temporary.write_text(text + more)
