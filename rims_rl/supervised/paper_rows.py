"""The paper's tables, row by row, and settings in words as its rows and ours are called."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

from rims_rl.config.layers import shipped_sections
from rims_rl.supervised.task import Task

PAPER = "supervised_paper.yml"
SIZES = ("core", "num_rims", "num_active", "hidden_size")  # the words say these first


class PaperRow(NamedTuple):
    """A row of supervised_paper.yml."""

    sizes: dict[str, Any]  # core, num_rims, num_active, hidden_size, as far as the paper says
    options: dict[str, Any]  # of the core, and settings of the task
    tests: dict[str, float]

    def __str__(self) -> str:
        return in_words(self.sizes, itertools.starmap(option_in_words, self.options.items()))

    def is_of(self, config: dict[str, Any]) -> bool:
        """Whether it is of this setting. What RIMs leave out is among the core's options."""
        whole = {"input_attention": True, "communication": True}
        settings = self.sizes | {key: value for key, value in self.options.items() if key in config}
        options = {key: value for key, value in self.options.items() if key not in config}
        same = all(config[key] == value for key, value in settings.items())
        return same and whole | options == whole | {k: v for k, v in config["core_kwargs"].items() if k in whole}


def paper_rows(task: type[Task], measure: str, tests: Iterable[str]) -> list[PaperRow]:
    """Of those of the paper's tables that are of this measure, and whose tests are among these."""
    found = []
    for table in shipped_sections(PAPER).get(task.name, ()):
        if table["measure"] == measure and set(table["tests"]) <= set(tests):
            for row in table["rows"]:
                sizes = {key: value for key, value in zip(SIZES, row, strict=False) if value is not None}
                found.append(PaperRow(sizes, row[4], dict(zip(table["tests"], row[5:], strict=True))))
    return found


def in_words(sizes: dict[str, Any], more: Iterable[str]) -> str:
    """Such as ``rims 6/4, 600 units, no communication``."""
    words = [sizes["core"]]
    if sizes["core"] == "rims" and "num_rims" in sizes:
        words[0] += f" {sizes['num_rims']}/{sizes['num_active']}"
    if "hidden_size" in sizes:
        words.append(f"{sizes['hidden_size']} units")
    return ", ".join([*words, *more])


def option_in_words(key: str, value: Any) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = "+".join(value)
    return f"no {key.replace('_', ' ')}" if value is False else f"{key}={value}"
