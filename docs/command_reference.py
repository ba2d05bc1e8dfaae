"""Writes the page of all commands from what typer knows of them, each time the site is built."""

import re
from pathlib import Path
from typing import Any

import typer

from rims_rl.cli import app

HEAD = """# Commands

Written by `make docs` from the commands themselves; `rims-rl COMMAND --help` says the same.
"""


def write_command_reference(path: Path) -> None:
    """Only if something has changed, so that Sphinx does not build the page again for nothing."""
    text = HEAD + "".join(_section(typer.main.get_command(app), ("rims-rl",)))
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _section(command: Any, path: tuple[str, ...]) -> list[str]:
    if command.hidden:
        return []
    parts = []
    commands = getattr(command, "commands", {})
    if len(path) > 1 and (not commands or command.invoke_without_command):
        parts.append(_describe(command, path))
    for name, each in commands.items():
        parts += _section(each, (*path, name))
    return parts


def _describe(command: Any, path: tuple[str, ...]) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and not param.hidden]
    usage = [*path, *(param.metavar or param.name.upper() for param in arguments), *(["[OPTIONS]"] if options else [])]
    lines = [f"\n## {' '.join(path)}\n", command.help or "", f"\n```text\n{' '.join(usage)}\n```\n"]
    if rows := [_row(param) for param in [*arguments, *options] if param.name != "help"]:
        lines += ["| | meaning | default |", "|---|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _row(param: Any) -> str:
    if param.param_type_name == "argument":
        names = f"`{param.metavar or param.name.upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
    meaning = re.sub(r"\s+", " ", param.help or "").replace("|", "\\|")
    required = "needed" if param.required else ""
    default = required if param.default in (None, False, []) or param.required else f"`{param.default}`"
    if isinstance(param.show_default, str):  # one that is not the same everywhere
        default = param.show_default
    return f"| {names} | {meaning} | {default} |"
