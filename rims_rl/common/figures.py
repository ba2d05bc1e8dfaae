"""Pictures on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rims_rl.common.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: Figure, path: Path, dpi: int = 110) -> None:
    """Write a PNG so that ``path`` is never half-written."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=dpi, format="png")
