"""Small pictures of bodies of MuJoCo, hundreds a second without a graphics card.

Gymnasium's own renderer makes one OpenGL context for each environment, with shadows of 4,096 x 4,096 pixels and every
pixel drawn several times. Here one renderer draws all copies, without shadows, mirrors and sky: 850 frames of 64 x 64 a
second instead of 12 to 90, on two cores.
"""

from __future__ import annotations

import importlib
import os
import sys
from ctypes.util import find_library
from typing import Any

import numpy as np

from rims_rl.common.errors import UserError

LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}  # MUJOCO_GL -> what it needs


def choose_renderer(name: str) -> None:
    """Let MuJoCo draw without a display."""
    if sys.platform != "linux" or {"MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        return
    for renderer, library in LIBRARIES.items():
        if find_library(library):
            os.environ["MUJOCO_GL"] = renderer
            for module in sorted(sys.modules):
                if module.startswith("mujoco.") and module.endswith(".gl_context"):  # it looks once, when imported
                    importlib.reload(sys.modules[module])
            return
    raise UserError(
        f"{name} cannot be drawn: there is neither a display, nor EGL, nor OSMesa; install one, such as the packages "
        "libegl1 and libegl-mesa0, or libosmesa6, of Debian and Ubuntu"
    )


class MujocoPictures:
    """Draws several copies of one body, each as it is now: `(n, side, side, 3)` bytes."""

    def __init__(self, bodies: list[Any], name: str, side: int) -> None:
        import mujoco  # type: ignore[import-untyped]

        self._bodies, model = bodies, bodies[0].model
        model.vis.quality.shadowsize = model.vis.quality.offsamples = 0  # read when the context is made
        try:
            self._renderer = mujoco.Renderer(model, side, side)
        except Exception as error:  # each way to draw fails in its own way
            reason = (str(error) or type(error).__name__).splitlines()[0]
            how = os.environ.get("MUJOCO_GL", "a window")
            raise UserError(
                f"{name} cannot be drawn by {how} ({reason}); install EGL or OSMesa and set MUJOCO_GL to egl or osmesa"
            ) from error
        for flag in ("SHADOW", "REFLECTION", "SKYBOX"):
            self._renderer.scene.flags[getattr(mujoco.mjtRndFlag, f"mjRND_{flag}")] = 0
        cameras = [model.camera(number).name for number in range(model.ncam)]
        self._camera = "track" if "track" in cameras else cameras[0] if cameras else -1  # as Gymnasium chooses

    def __call__(self) -> np.ndarray:
        pictures = []
        for body in self._bodies:
            self._renderer.update_scene(body.data, self._camera)
            pictures.append(self._renderer.render())
        return np.stack(pictures)

    def close(self) -> None:
        self._renderer.close()
