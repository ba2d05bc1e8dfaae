"""A recording as one HTML file that needs no network: ``page.html`` with style, program and data put into it."""

from __future__ import annotations

import base64
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from rims_rl.common.errors import UserError
from rims_rl.common.files import replacing

SHARES = ("input_attention", "communication")  # between 0 and 1: two bytes are enough to look at


def write_page(recording: Path, out: Path) -> None:
    """Make the page of a file that :func:`rims_rl.inspect.recording.write_recording` wrote."""
    with np.load(recording) as arrays:
        data = {name: _encode(name, arrays[name]) for name in arrays.files if name != "about"}
        data["about"] = json.loads(str(arrays["about"]))
    folder = files("rims_rl.inspect") / "page"
    parts = {
        "style": (folder / "page.css").read_text(),
        "script": (folder / "page.js").read_text(),
        "recording": json.dumps(data).replace("<", "\\u003c"),  # so that no text of it can end the script it is in
    }
    template = (folder / "page.html").read_text()
    page = re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)
    try:
        with replacing(out) as temporary:
            temporary.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror or error}") from error


def _encode(name: str, array: np.ndarray) -> dict[str, Any]:
    """What the page makes a typed array of."""
    if name in SHARES:
        array = np.round(array * 65535).astype(np.uint16)
    elif array.dtype == bool:
        array = array.astype(np.uint8)
    elif array.dtype == np.int64:  # numbers of actions, and ends of frames, which a double holds exactly
        array = array.astype(np.float64)
    little = array.astype(array.dtype.newbyteorder("<"))
    return {"type": array.dtype.name, "shape": array.shape, "data": base64.b64encode(little.tobytes()).decode()}
