"""How an environment is played, beside its name: what a run is asked for, keeps, and is evaluated with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Wrapper = str | Annotated[dict[str, dict[str, Any]], Field(min_length=1, max_length=1)]  # a path, or path: arguments


class EnvOptions(BaseModel):
    """Each is None where the environment's own way is meant. ``gym_packages``, ``env_kwargs``, ``env_wrapper`` and
    ``frame_stack`` are rl_zoo3's."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    backend: str | None = None  # of an Atari game: "ale" or "sb3"
    game_mode: int | None = None  # ALE's
    difficulty: int | None = None  # likewise
    observation: str | None = None  # of a MiniGrid environment: "symbolic" or "rgb"
    distractors: str | None = None  # over the frames of an Atari game
    gym_packages: list[str] | None = None  # to import before, so that Gymnasium knows their environments
    env_kwargs: dict[str, Any] | None = None  # of gymnasium.make
    env_wrapper: list[Wrapper] | None = None  # dotted paths, the innermost first
    frame_stack: Annotated[int, Field(ge=2)] | None = None  # how many observations are seen at once
    vec_env: Literal["dummy", "subproc", "vector"] | None = None  # copies side by side: here, in processes, its own

    def given(self) -> dict[str, Any]:
        """Those that are not None, as plain data."""
        options = {name: getattr(self, name) for name in EnvOptions.model_fields}
        return {name: value for name, value in options.items() if value is not None}
