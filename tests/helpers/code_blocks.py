"""The examples of the documentation, run as a reader would."""

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rims_rl import cli

ROOT = Path(__file__).parents[2]


def run_python_blocks(page: str) -> dict[str, Any]:
    """Run all blocks of Python in a page, one after the other. Returns the names that they leave."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, page, "exec"), names)
    return names


@contextmanager
def page_followed(page: str, folder: Path, file: str, shorten: Callable[[str], str]) -> Iterator[None]:
    """Write the page's block of Python to ``file`` in ``folder``, go there, and run its commands, each as ``shorten``
    makes it. Inside, all is as it then is for a reader."""
    text = (ROOT / page).read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setattr(sys, "path", list(sys.path))
        (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        (folder / file).write_text(code)
        (commands,) = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for line in commands.splitlines():
            patch.setattr(sys, "argv", shlex.split(shorten(line)))
            with pytest.raises(SystemExit) as end:
                cli.main()
            assert end.value.code == 0, line
        yield
    sys.modules.pop(file.removesuffix(".py"), None)
