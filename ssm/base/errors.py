"""Errors a user can act on. Each is one clear line; the command line prints it and exits with a non-zero code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user gave, or the machine lacks. The message says where, what was expected, and what to try."""


class ConfigError(UserError):
    """A configuration file is wrong: unknown key, wrong type, impossible combination."""


class DataError(UserError):
    """A corpus, a tokenizer or a token store is missing, empty, truncated or corrupted."""


class CheckpointError(UserError):
    """A checkpoint is missing, corrupted, or belongs to another run."""


class TableError(UserError):
    """A table is missing, does not follow its schema, or lacks its provenance."""


class OutputError(UserError):
    """An output cannot be written."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """The hint that follows an unknown name: its nearest valid neighbour, or else all the valid names.

    >>> nearest("traning", ["training", "model"])
    "did you mean 'training'?"
    >>> nearest("x", ["training", "model"])
    'valid names: model, training'
    """
    names = sorted({str(v) for v in valid})
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return "valid names: " + ", ".join(names) if names else "there are no valid names here"


def first_line(error: Exception) -> str:
    """What an error of another package says, in one line.

    >>> first_line(ValueError("no\\nway"))
    'no'
    >>> first_line(KeyError())
    'KeyError'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
