"""What the README shows, runs."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_python_snippets_run_one_after_the_other():
    snippets = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert snippets
    namespace = {}
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), namespace)
    assert namespace["output"].shape == (128, 8, 600)
    assert namespace["model"].num_timesteps >= 512


def test_every_linked_file_exists():
    for link in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (Path(__file__).parents[1] / link).exists(), link
