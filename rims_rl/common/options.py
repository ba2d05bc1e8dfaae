"""What verbs are asked for: one object each."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rims_rl.common.errors import UserError
from rims_rl.common.suggestions import did_you_mean

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, le=2**30)]  # environment i adds i, and ALE takes 31 bits


class Options(BaseModel):
    """Options of a verb, by name. A UserError says what is wrong with them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            name = str(detail["loc"][0])
            raise UserError(self._explain(name, detail["type"], detail["msg"], detail["input"])) from error

    @classmethod
    def _explain(cls, name: str, kind: str, message: str, value: Any) -> str:
        if kind == "extra_forbidden":
            hint = did_you_mean(name, cls.model_fields, f"the options are {', '.join(cls.model_fields)}")
            return f"there is no option {name!r}; {hint}"
        if kind == "missing":
            return f"`{name}` is missing"
        return f"`{name}` must be {message.removeprefix('Input should be ')}, got {value!r}"
