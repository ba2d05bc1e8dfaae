"""What ``rims-rl bench`` prints."""

from __future__ import annotations

from statistics import median
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


def print_core(result: dict[str, Any]) -> None:
    table = Table(
        title=f"Forward and backward, {result['threads']} threads",
        caption="speed relative to fused; MB: memory, fused / rim 6/4",
        box=SIMPLE_HEAD,
        padding=0,
    )
    names = [name for name in result["sequences"][0]["ms"] if name != "fused"]
    for column in ("cell", "T x B", "fused ms", *names, "MB"):
        table.add_column(column, justify="right", no_wrap=True)
    for case in result["sequences"]:
        ms, memory = case["ms"], case["memory_mb"]
        table.add_row(
            case["cell"],
            f"{case['T']} x {case['B']}",
            f"{ms['fused']:.0f}",
            *(f"{ms['fused'] / ms[name]:.2f}" for name in names),
            " / ".join("?" if memory[name] is None else f"{memory[name]:.0f}" for name in ("fused", "rim 6/4")),
        )
    Console().print(table)
    _print_targets(result, ".2f")


def print_update(result: dict[str, Any]) -> None:
    steps = result["n_envs"] * result["n_steps"]
    table = Table(title=f"One PPO update of {steps} steps, and one forward of {result['n_envs']}")
    for column in ("", "update ms", "steps/s", "x stock", "forward ms", "x stock"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    update, forward = result["update_ms"], result["forward_ms"]
    for name, ms in update.items():
        table.add_row(
            name,
            f"{ms:.0f}",
            f"{steps / ms * 1e3:.0f}",
            f"{update['stock'] / ms:.1f}",
            f"{forward[name]:.2f}",
            f"{forward['stock'] / forward[name]:.1f}",
        )
    Console().print(table)
    _print_targets(result, ".2f")


def print_train(result: dict[str, Any]) -> None:
    table = Table(title=f"Training on {result['env']['name']}")
    for column in ("", "steps/s", "x stock", "rollout ms", "update ms"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    stock = result["agents"]["stock"]["steps_per_second"]
    for name, agent in result["agents"].items():
        speed = agent["steps_per_second"]
        row = (f"{speed:.0f}", f"{speed / stock:.1f}", f"{agent['rollout_ms']:.0f}", f"{agent['update_ms']:.0f}")
        table.add_row(name, *row)
    for name, speed in result["ceilings"].items():
        table.add_row(name, f"{speed:.0f}", f"{speed / stock:.1f}")
    Console().print(table)
    table = Table(title="Where the time of ours, rims goes")
    table.add_column("")
    table.add_column("ms", justify="right")
    table.add_column("%", justify="right")
    parts = result["where_rims_ms"]
    for name, ms in parts.items():
        table.add_row(name, f"{ms:.0f}", f"{ms / sum(parts.values()) * 100:.0f}")
    Console().print(table)
    _print_targets(result, ".2f")


def print_export(result: dict[str, Any]) -> None:
    names = list(result["cases"][0]["us"])
    table = Table("batch", *(f"{name}, us" for name in names), title="One step of an Atari policy")
    for case in result["cases"]:
        table.add_row(str(case["batch"]), *(f"{case['us'][name]:.0f}" for name in names))
    Console().print(table)
    _print_targets(result, ".2f")


def print_supervised(result: dict[str, Any]) -> None:
    cases = result["cases"]
    table = Table(
        "core", *(f"span {case['span']}" for case in cases), title="Sequences per second, training on copying"
    )
    for name in cases[0]["sequences_per_second"]:
        table.add_row(name, *(f"{case['sequences_per_second'][name]:.1f}" for case in cases))
    share = (f"{max(case['data_share'].values()):.2%}" for case in cases)
    table.add_row("data, at most", *share, style="dim")
    Console().print(table)
    _print_targets(result, ".3g")


def print_trace(result: dict[str, Any]) -> None:
    table = Table("input", "batch", "bare, us", "off, us", "on, us", title="One step of an Atari policy")
    for case in result["cases"]:
        table.add_row(case["input"], str(case["batch"]), *(f"{us:.0f}" for us in case["us"].values()))
    Console().print(table)
    _print_targets(result, ".3f")


def print_stability(result: dict[str, Any]) -> None:
    table = Table(title=f"Largest state after training on CartPole, {result['seeds']} seeds")
    for column in ("core", "learning rate", "median", "largest", "diverged"):
        table.add_column(column, justify="left" if column == "core" else "right", no_wrap=True)
    for case in result["cases"]:
        finite = [state for state in case["largest_state"] if state is not None]
        numbers = (f"{median(finite):.3g}", f"{max(finite):.3g}") if finite else ("", "")
        diverged = str(len(case["largest_state"]) - len(finite))
        table.add_row(case["core"], f"{case['learning_rate']:g}", *numbers, diverged)
    Console().print(table)
    _print_targets(result, ".2f")


def _print_targets(result: dict[str, Any], digits: str) -> None:
    for target in result["targets"]:
        text = f"{target['what']}: {target['reached']:{digits}} ({target['must be']} {target['target']})"
        Console().print(text)
