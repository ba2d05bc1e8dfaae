"""What the attacks have in common: a command that is watched, and code that must never run."""

import contextlib
import io
import signal
import sys
import traceback

from rims_rl import cli
from rims_rl.common.errors import UserError

SECONDS = 60  # that one command may take; all of them are done in few


class Touch:
    """Unpickling this would make a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


class TooLong(BaseException):
    pass


def command(words, seconds=SECONDS):
    """Exit code and what was said; an exception that escapes is an exit code of 1 with its traceback, as in a shell.
    Instead of words it may be a function."""
    said = io.StringIO()

    def too_long(*_):
        raise TooLong(f"more than {seconds} seconds")

    before = sys.argv, signal.signal(signal.SIGALRM, too_long)
    sys.argv = ["rims-rl", *(() if callable(words) else words)]
    signal.alarm(seconds)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            words() if callable(words) else cli.main()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    except UserError as error:
        code = 2
        said.write(f"rims-rl: {error}")
    except BaseException:
        code = 1
        said.write(traceback.format_exc())
    finally:
        signal.alarm(0)
        sys.argv = before[0]
        signal.signal(signal.SIGALRM, before[1])
    return code, said.getvalue()
