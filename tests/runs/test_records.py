"""What a run leaves is read as it was written, whichever version wrote it."""

import json
import shutil
from pathlib import Path

import pytest

from rims_rl.common.errors import UserError
from rims_rl.runs.folder import is_finished, read_arguments, read_result, write_result, write_settings
from rims_rl.runs.records import RunResult, read_record

OLD = Path(__file__).parents[1] / "helpers" / "run_of_version_0_1"


def test_a_result_of_version_0_1_is_read_and_written_again_without_a_loss(tmp_path):
    result = read_result(OLD)
    assert result.version == 1 and result.steps == 256 and is_finished(OLD)
    write_result(tmp_path, result)
    before, after = (json.loads((folder / "run.json").read_text()) for folder in (OLD, tmp_path))
    assert "version" not in before and after == before | {"version": 1}


def test_so_is_what_it_was_asked_for(tmp_path):
    arguments, config = read_arguments(OLD)
    assert "version" not in config.with_name("args.yml").read_text()
    write_settings(tmp_path, "CartPole-v1", arguments, {})
    file = tmp_path / "CartPole-v1/args.yml"
    assert "version: 1" in file.read_text() and read_arguments(tmp_path)[0] == arguments
    file.write_text(file.read_text().replace("version: 1", "version: 2"))
    with pytest.raises(UserError, match="Input should be 1"):
        read_arguments(tmp_path)


def test_a_version_that_is_not_known_is_one_sentence(tmp_path):
    shutil.copy(OLD / "run.json", tmp_path)
    data = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(data | {"version": 2}))
    with pytest.raises(UserError, match=r"run\.json is damaged \(version: Input should be 1\); train again"):
        read_record(tmp_path / "run.json", RunResult, "train again")
    assert read_result(tmp_path) is None and not is_finished(tmp_path)
