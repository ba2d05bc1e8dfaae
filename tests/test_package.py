"""What a user gets from the wheel and from the `rims-rl` command."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rims_rl
from rims_rl import cli

ROOT = Path(__file__).parents[1]
INSTALLED_AS = {
    "rims_rl": "rims_rl",
    "agents": "rims_rl/agents",
    "envs": "rims_rl/envs",
    "zoo_configs": "rims_rl/zoo_configs",
}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """A wheel of the sources, built from a copy: leftovers in build/ must not hide a file that is not listed."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for folder in INSTALLED_AS:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "zoo_configs/suites").mkdir(exist_ok=True)
    for probe in ("zoo_configs/probe.yml", "zoo_configs/suites/probe.yml"):
        (source / probe).write_text("probe: 1\n")

    pip("wheel", "--no-build-isolation", "--wheel-dir", source / "dist", source)
    return next((source / "dist").glob("rims_rl-*.whl"))


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """A folder into which only the wheel is installed."""
    target = tmp_path_factory.mktemp("site")
    pip("install", "--target", target, wheel)
    return target


def test_wheel_has_every_module(wheel):
    modules = {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, package in INSTALLED_AS.items()
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {"rims_rl/core/__init__.py", "rims_rl/agents/__init__.py", "rims_rl/envs/__init__.py"} <= modules
    missing = modules - contents(wheel)
    assert not missing, f"list their packages in pyproject.toml, [tool.setuptools] packages: {sorted(missing)}"


def test_wheel_has_type_marker_zoo_configs_and_the_page(wheel):
    expected = {
        "rims_rl/py.typed",
        "rims_rl/core/rims/engines/loops.c",
        "rims_rl/zoo_configs/probe.yml",
        "rims_rl/zoo_configs/suites/probe.yml",
    }
    expected |= {f"rims_rl/inspect/page/page.{kind}" for kind in ("html", "css", "js")}
    assert expected <= contents(wheel)


def test_wheel_adds_nothing_but_rims_rl_to_site_packages(wheel):
    top_level = {name.split("/")[0] for name in contents(wheel)}
    assert top_level == {"rims_rl", f"rims_rl-{rims_rl.__version__}.dist-info"}


def test_installed_package_is_complete_and_leaves_the_name_agents_free(installed, tmp_path):
    # Where a module came from matters: the editable install of this environment could stand in for a missing one.
    run_installed(
        installed,
        tmp_path,
        "-c",
        "import importlib.util, pathlib, sys, importlib.resources as resources\n"
        "import rims_rl, rims_rl.agents, rims_rl.envs\n"
        "for module in (rims_rl, rims_rl.agents, rims_rl.envs):\n"
        "    assert pathlib.Path(module.__file__).is_relative_to(sys.argv[1]), module\n"
        "assert (resources.files('rims_rl.zoo_configs') / 'suites' / 'probe.yml').read_text() == 'probe: 1\\n'\n"
        "assert importlib.util.find_spec('agents') is None\n",
        str(installed),
    )


def test_import_loads_no_torch_until_a_name_needs_it(tmp_path):
    code = "import sys, rims_rl; assert 'torch' not in sys.modules; rims_rl.RIM; assert 'torch' in sys.modules"
    run(tmp_path, "-c", code)


@pytest.mark.parametrize("module", ["rims_rl.core", "rims_rl.supervised.experiment"])
def test_cores_and_supervised_tasks_load_nothing_of_reinforcement_learning(module, tmp_path):
    others = {"stable_baselines3", "sb3_contrib", "gymnasium", "ale_py", "minigrid", "cv2", "pandas", "rliable"}
    run(tmp_path, "-c", f"import sys, {module}; found = {others} & set(sys.modules); assert not found, found")


def test_public_names_exist_and_others_do_not():
    assert all(hasattr(rims_rl, name) and name in dir(rims_rl) for name in rims_rl.__all__)
    with pytest.raises(AttributeError, match="no attribute 'RIMM'"):
        rims_rl.RIMM  # noqa: B018


def test_zoo_configs_are_found_from_the_source_tree(tmp_path):
    code = "import importlib.resources as r; assert (r.files('rims_rl.zoo_configs') / 'README.md').is_file()"
    run(tmp_path, "-c", code)


def test_functions_have_few_parameters():
    """More of them become an object with options. Constructors and the command line's functions may have more."""
    files = [file for folder in ("rims_rl", "agents", "envs") for file in (ROOT / folder).rglob("*.py")]
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
        for file in files
        if not file.is_relative_to(ROOT / "rims_rl/cli")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in ("__init__", "__new__")
        if len({each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)} - {"self", "cls"}) > 8
    ]
    assert len(files) > 100 and not found, found


def test_help_loads_no_torch(installed, tmp_path):
    result = run_installed(installed, tmp_path, "-X", "importtime", installed / "bin/rims-rl", "--help")
    assert "bench" in result.stdout
    imported = set(re.findall(r"\| +([\w.]+)$", result.stderr, flags=re.MULTILINE))
    assert "rims_rl.cli" in imported
    assert imported.isdisjoint({"torch", "stable_baselines3", "gymnasium", "numpy", "matplotlib"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bnech"], "No such command 'bnech'"),
        (["bench", "croe"], "No such command 'croe'"),
        (["bench", "core", "--thread", "2"], "No such option: --thread"),
        (["bench", "core", "--repeats", "0"], "Invalid value for '--repeats'"),
    ],
)
def test_misspelled_call_says_so_and_exits_with_2(arguments, message, monkeypatch, capsys):
    error = fail(arguments, monkeypatch, capsys)
    assert message in error


def test_user_error_becomes_one_line_and_exit_code_2(monkeypatch, capsys):
    error = fail(["zoo", "show", "DemonAtack"], monkeypatch, capsys)
    assert error == "rims-rl: there is no environment called 'DemonAtack'; did you mean DemonAttack?\n"


def test_version_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["rims-rl", "--version"])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"rims-rl {rims_rl.__version__}\n"


def contents(wheel):
    return set(zipfile.ZipFile(wheel).namelist())


def pip(command, *arguments):
    run(ROOT, "-m", "pip", command, "--no-deps", "--no-index", "--disable-pip-version-check", *arguments)


def run_installed(site, folder, *arguments):
    return run(folder, *arguments, PYTHONPATH=str(site))


def test_a_file_that_cannot_be_written_is_one_line(monkeypatch, capsys):
    command = ["evaluate", "CartPole-v1", "--random", "--episodes", "1", "--out", "/proc/nowhere/x.json"]
    assert (
        fail(command, monkeypatch, capsys)
        == "rims-rl: /proc/nowhere/x.json cannot be written: No such file or directory\n"
    )


def run(folder, *arguments, **environment):
    """Run Python in `folder`, far from the sources unless told, and insist on success."""
    result = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def fail(arguments, monkeypatch, capsys):
    """Run the command line, insist on exit code 2 without a traceback, and return what it wrote to stderr."""
    monkeypatch.setattr(sys, "argv", ["rims-rl", *arguments])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    error = capsys.readouterr().err
    assert exit_.value.code == 2
    assert "Traceback" not in error
    return error
