"""Errors that are meant for the user's eyes."""

__all__ = ["Diverged", "EnvironmentFailed", "UserError"]


class UserError(Exception):
    """A mistake the user can correct, in one sentence: what was wrong, with the value, and what would be right.

    The command line prints the sentence without a traceback and exits with code 2.
    """


class Diverged(UserError, ValueError):
    """The numbers of a model are not finite any more."""


class EnvironmentFailed(UserError):
    """An environment raised something, which is the ``__cause__``, or gave numbers that are not finite."""
