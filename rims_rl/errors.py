"""Errors that are meant for the user's eyes."""

__all__ = ["UserError"]


class UserError(Exception):
    """A mistake the user can correct, in one sentence: what was wrong, with the value, and what would be right.

    The command line prints the sentence without a traceback and exits with code 2.
    """
