"""Video files, written frame by frame by the ffmpeg that comes with imageio-ffmpeg."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from imageio_ffmpeg import get_ffmpeg_exe  # type: ignore[import-untyped]

from rims_rl.common.errors import UserError

FORMATS = {
    # H.264 as every player takes it, which wants even sizes: an odd one gets a black line
    ".mp4": ["-c:v", "libx264", "-crf", "18", "-pix_fmt", "yuv420p", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"],
    # each frame has a palette of its own, so that colours are exact and nothing is collected in memory
    ".gif": ["-vf", "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1:dither=none"],
}


def check_video_name(out: Path) -> None:
    if out.suffix not in FORMATS:
        raise UserError(f"a video's name must end in {' or '.join(FORMATS)}, got {out}")


@contextmanager
def write_video(out: Path, fps: float, width: int, height: int) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that adds one RGB frame to ``out``, ``.mp4`` or ``.gif``, which gets its name when it is whole."""
    check_video_name(out)
    temporary = out.with_name(f".{out.stem}.{os.getpid()}{out.suffix}")
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-"]
    command = [get_ffmpeg_exe(), "-v", "error", "-y", *source, *FORMATS[out.suffix], str(temporary)]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out.parent} cannot be made: {error.strerror}") from error
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us: ffmpeg has to finish the file
        ) as ffmpeg:
            try:
                yield partial(_add, ffmpeg)
                _, errors = ffmpeg.communicate()
            except BrokenPipeError:  # ffmpeg has ended; below it says why
                _, errors = ffmpeg.communicate()
            except BaseException:
                ffmpeg.kill()
                raise
        if ffmpeg.returncode:
            reason = errors.decode(errors="replace").strip().splitlines()[-1:] or ["ffmpeg was ended"]
            raise UserError(f"{out} cannot be written: {reason[0]}")
        os.replace(temporary, out)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _add(ffmpeg: subprocess.Popen[bytes], frame: np.ndarray) -> None:
    assert ffmpeg.stdin is not None
    ffmpeg.stdin.write(np.ascontiguousarray(frame, np.uint8).tobytes())
