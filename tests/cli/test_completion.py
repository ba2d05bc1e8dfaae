"""Shells complete commands and options."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("rims-rl")


@pytest.mark.parametrize(
    ("words", "expected"), [("rims-rl tu", ["tune"]), ("rims-rl train --call", ["--callback"]), ("rims-rl x", [])]
)
def test_bash_completes_commands_and_options(words, expected):
    asked = {"_RIMS_RL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = subprocess.run([COMMAND], env=os.environ | asked, capture_output=True, text=True)
    assert result.stdout.split() == expected and result.returncode == 0, result.stderr
