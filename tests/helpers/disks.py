"""A disk that is soon full."""

import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", folder], capture_output=True)
    if mount.returncode:
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", folder], check=True)
