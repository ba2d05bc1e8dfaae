"""Model cards: a Markdown page about an exported policy, in the form that the Hugging Face hub has for RL agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing

LIBRARY = "library_name: rims-rl"


def check_card(folder: Path) -> None:
    """The hub wants the name README.md: a UserError if somebody else's is there."""
    card = folder / "README.md"
    if card.exists() and LIBRARY not in card.read_text():
        raise UserError(f"{card} is not a model card of rims-rl and would be lost; choose another folder with `out`")


def write_card(file: Path, about: dict[str, Any]) -> Path:
    """Write ``README.md`` beside the exported ``file``, and return its path."""
    check_card(file.parent)
    card = file.with_name("README.md")
    front = yaml.safe_dump(_front_matter(about), sort_keys=False)
    with replacing(card) as temporary:
        temporary.write_text(f"---\n{front}---\n\n{_page(file, about)}")
    return card


def _front_matter(about: dict[str, Any]) -> dict[str, Any]:
    name, value = LIBRARY.split(": ")
    data: dict[str, Any] = {
        name: value,
        "tags": [about["env"], "deep-reinforcement-learning", "reinforcement-learning", "rims-rl"],
    }
    if score := about["score"]:
        result = {
            "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
            "dataset": {"name": about["env"], "type": about["env"]},
            "metrics": [
                {
                    "type": "mean_reward",
                    "value": f"{score['mean']:.2f} +/- {score['std']:.2f}",
                    "name": "mean_reward",
                    "verified": False,
                }
            ],
        }
        data["model-index"] = [{"name": _algorithm(about), "results": [result]}]
    return data


def _page(file: Path, about: dict[str, Any]) -> str:
    kwargs = about["policy_kwargs"]
    core = kwargs.get("core", "rims")
    sizes = ", ".join(f"{key} {kwargs[key]}" for key in ("num_rims", "num_active", "rim_size") if key in kwargs)
    trained = f"{about['steps']:,} steps" if about.get("steps") else "an unknown number of steps"
    page = (
        f"# {_algorithm(about)} on {about['env']}\n\n"
        f"A `{about['policy']}` with the core `{core}` ({sizes}), trained with {_algorithm(about)} on "
        f"`{about['env']}` for {trained} by rims-rl.\n\n## Score\n\n"
    )
    if score := about["score"]:
        low, high = score["mean_95"]
        page += (
            f"Mean {score['mean']:.1f} (95 % interval {low:.1f} to {high:.1f}), median {score['median']:.1f}, standard "
            f"deviation {score['std']:.1f}, over {score['episodes']} episodes with "
            f"{'most likely' if score['deterministic'] else 'sampled'} actions, one training run. "
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
    versions = ", ".join(f"{name} {about[name]}" for name in ("rims_rl", "commit", "torch", "numpy") if about[name])
    return page + f"\nExported {about['date']} with {versions}.\n"


def _algorithm(about: dict[str, Any]) -> str:
    return {"ppo": "RecurrentPPO", "a2c": "RecurrentA2C"}.get(about.get("algo", ""), "an unknown algorithm")
