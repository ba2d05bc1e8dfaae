"""The examples of the documentation, run as a reader would."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_python_blocks(page: str) -> dict[str, Any]:
    """Run all blocks of Python in a page, one after the other. Returns the names that they leave."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, page, "exec"), names)
    return names
