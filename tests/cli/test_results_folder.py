"""Where commands look for results and write them."""

import shutil
import sys
from pathlib import Path

import pytest

from rims_rl import cli
from tests.helpers.code_blocks import ROOT


def test_results_are_in_the_current_folder_even_where_there_is_docs_results(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    published = ROOT / "docs/results/transfer_small"
    count = len(list(published.iterdir()))

    def status(*words):
        monkeypatch.setattr(sys, "argv", ["rims-rl", "suite", "status", "transfer_small", *words])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        assert exit_.value.code == 0
        return capsys.readouterr().out

    shutil.copytree(published, Path("docs/results/transfer_small"))
    assert f"{count} finished" not in status()
    assert f"{count} finished" in status("--results", "docs/results/transfer_small")
    Path("docs/results").rename("results")
    assert f"{count} finished" in status()
