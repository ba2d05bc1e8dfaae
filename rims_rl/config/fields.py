"""What settings are made of, for pydantic: kinds of numbers, and the class of them all."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator


def _whole(value: Any) -> Any:
    """``1e6`` is a float in YAML, and a whole number to everybody else."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _positive_or_linear(value: Any) -> float | str:
    linear = isinstance(value, str) and value.startswith("lin_")
    try:
        number = float(value[len("lin_") :] if linear else value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or (isinstance(value, str) and not linear) or not 0 < number < math.inf:
        raise ValueError("a positive number, or one that falls linearly to 0, such as lin_2.5e-4")
    return value if linear else number


Count = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Schedule = Annotated[float | str, PlainValidator(_positive_or_linear)]  # written as rl_zoo3 does: 3e-4 or lin_3e-4


class Settings(BaseModel):
    """Settings of a training. Those of version 0.1 have no default here: the YAML files of ``zoo_configs/`` give them.

    A field that is added later has one, at which everything stays as it was before. At its default it is no part of
    the definition of a job, so that jobs keep their hashes, and files from before it existed are still read. For the
    same reason such a default never changes.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def definition(self) -> dict[str, Any]:
        """What the hash of a job covers, as plain data."""
        return self.model_dump(exclude_defaults=True)
