"""Errors a user can act on. Each is one clear line; the command line prints it and exits with a non-zero code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LINE, WORD = 1500, 300  # characters of a message, and of a word in it; what is more is left out in the middle
VALUE = 80  # characters of a value that a message repeats


class UserError(Exception):
    """Something the user gave, or the machine lacks. The message says where, what was expected, and what to try.

    Whatever a file or another package has put into it, it is one line that a terminal can show.
    """

    def __init__(self, message: object = ""):
        text = printable(shortened(str(message), 4 * LINE))
        super().__init__(shortened(" ".join(shortened(word, WORD) for word in text.split(" ")), LINE))


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


def nearest(name: str, valid: Iterable[str], otherwise: str = "") -> str:
    """The hint that follows an unknown name: its nearest valid neighbour, or else all the valid names.

    Args:
        otherwise: said where no name is near, in place of names that are too many to list.

    >>> nearest("traning", ["training", "model"])
    "did you mean 'training'?"
    >>> nearest("x", ["training", "model"])
    'valid names: model, training'
    >>> nearest("x", ["training", "model"], "the README lists them")
    'the README lists them'
    """
    names = sorted({str(v) for v in valid})
    close = difflib.get_close_matches(str(name)[:VALUE], names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{shortened(close[0])}'?"
    if otherwise:
        return otherwise
    return "valid names: " + ", ".join(map(shortened, names)) if names else "there are no valid names here"


def printable(text: str) -> str:
    """The text with what moves a cursor, ends a line or cannot be seen written as an escape.

    >>> printable("a\\nb\\x1b[2J")
    'a\\\\nb\\\\x1b[2J'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, most: int = VALUE) -> str:
    """A text of `most` characters at most: its beginning and its end.

    >>> shortened("a long name that nobody reads", 12)
    'a lo ... ads'
    """
    if len(text) <= most:
        return text
    end = (most - 5) // 2
    return f"{text[: most - 5 - end]} ... {text[len(text) - end :]}"


def shown(value: object) -> str:
    """A value from outside as a message repeats it: as Python writes it, short and printable.

    >>> shown("one\\ntwo")
    "'one\\\\ntwo'"
    >>> shown([1, 2])
    '[1, 2]'
    """
    if isinstance(value, str):
        value = shortened(value, 4 * VALUE)  # of a text of megabytes, no copy is made
    elif isinstance(value, dict | list | tuple) and len(value) > VALUE:
        return f"{'a mapping' if isinstance(value, dict) else 'a list'} of {len(value)}"
    try:
        return shortened(printable(repr(value)))
    except ValueError:  # Python writes no integers of thousands of digits
        return "a very large number"


def first_line(error: BaseException) -> str:
    """What an error of another package says, in one line.

    >>> first_line(ValueError("no\\nway"))
    'no'
    >>> first_line(KeyError())
    'KeyError'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
