"""Errors that a user can fix. The command line prints each as one line and exits with a non-zero code."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

from ssm.base.counting import first_of

LINE, WORD = 1500, 300  # longest message and longest word in characters; the middle of longer ones is left out
VALUE = 80  # longest value in a message, in characters
# Words of torch; of the operating system, as others pass them on; and of the loader of shared libraries.
NO_MEMORY = (
    *("out of memory", "can't allocate memory", "ALLOC_FAILED"),
    *("Cannot allocate memory", "failed to map segment"),
)
MOST_NEAR, MOST_NAMES = 4, 30  # names in a hint: equally near names, and names in a list
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # error numbers of a full disk, of a quota, and of a file size limit


class UserError(Exception):
    """An error in the user's input, or something missing on the machine.

    The message says where, what was expected, and what to try. It is always one printable line, even if it contains
    text from a file or from another package.
    """

    def __init__(self, message: object = ""):
        text = printable(shortened(str(message), 4 * LINE))
        super().__init__(shortened(" ".join(shortened(word, WORD) for word in text.split(" ")), LINE))


class ConfigError(UserError):
    """A config file is wrong: an unknown key, a wrong type, or an impossible combination."""


class DataError(UserError):
    """A corpus, a tokenizer or a token store is missing, empty, truncated or corrupted."""


class MissingFilesError(DataError):
    """Files of a corpus do not exist. What was made from them can still be used."""


class CheckpointError(UserError):
    """A checkpoint is missing, corrupted, or belongs to another run."""


class TableError(UserError):
    """A table is missing, does not follow its schema, or lacks its provenance."""


class OutputError(UserError):
    """An output cannot be written."""


def is_lack_of_memory(error: Exception) -> bool:
    """Whether an error is one of Python, numpy, torch (which is not imported here) or the operating system.

    A disk without the right to execute gives the loader's words too, with a reason.
    """
    said = any(words in str(error) for words in NO_MEMORY) and "Operation not permitted" not in str(error)
    return isinstance(error, MemoryError) or said or getattr(error, "errno", None) == errno.ENOMEM


def advise(error: BaseException, less_memory: str) -> None:
    """Note at a lack of memory which options need less. Other errors stay as they are."""
    if less_memory and isinstance(error, Exception) and is_lack_of_memory(error):
        error.add_note(f"less is needed with {less_memory}")


def as_user_error(error: BaseException) -> UserError | None:
    """A UserError, or a lack of permission, space or memory, as a UserError with its notes; None for other errors."""
    notes: list[str] = getattr(error, "__notes__", [])
    if isinstance(error, UserError):
        if not notes:
            return error
        said = str(error)
    elif isinstance(error, PermissionError):
        said = f"{error.filename}: {error.strerror}" if error.filename else first_line(error)
    elif isinstance(error, OSError) and error.errno in FULL:
        where = error.filename or "standard output or a temporary file"  # other files give an OutputError
        said = f"{where}: cannot be written ({error.strerror})"
    elif isinstance(error, Exception) and is_lack_of_memory(error):
        said = f"out of memory ({first_line(error)})"
    else:
        return None
    return UserError("; ".join([said, *notes]))


def nearest(name: str, valid: Iterable[str], otherwise: str = "") -> str:
    """The hint after an unknown name: the nearest valid names (upper and lower case are the same), or a list of names.

    Args:
        otherwise: hint if no name is near, instead of a list of names.

    >>> nearest("Traning", ["training", "model"])
    "did you mean 'training'?"
    >>> nearest("fig5", ["ls_fig5", "ls_fig2", "lg_fig5"])
    "did you mean 'lg_fig5' or 'ls_fig5'?"
    >>> nearest("x", ["training", "model"])
    'valid names: model, training'
    >>> nearest("x", ["training", "model"], "the README lists them")
    'the README lists them'
    """
    names = sorted({str(v) for v in valid})
    hint = did_you_mean(name, names) or otherwise
    if hint:
        return hint
    if not names:
        return "there are no valid names here"
    return f"valid names: {first_of([*map(shortened, names)], MOST_NAMES)}"


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """The question for the nearest valid names (upper and lower case are the same); empty if none is near.

    >>> did_you_mean("Traning", ["training", "model"])
    "did you mean 'training'?"
    >>> did_you_mean("x", ["training", "model"])
    ''
    """
    folded = {one.casefold(): one for one in sorted(valid)}
    wanted = str(name)[:VALUE].casefold()
    close = difflib.get_close_matches(wanted, folded, n=MOST_NEAR, cutoff=0.6)
    if not close:
        return ""
    ratios = [difflib.SequenceMatcher(None, one, wanted).ratio() for one in close]
    best = [one for one, ratio in zip(close, ratios, strict=True) if ratio == ratios[0]]
    return f"did you mean {' or '.join(sorted(shown(folded[one]) for one in best))}?"


def printable(text: str) -> str:
    """The text with escapes instead of line ends, control characters and invisible characters.

    >>> printable("a\\nb\\x1b[2J")
    'a\\\\nb\\\\x1b[2J'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, most: int = VALUE) -> str:
    """The text with at most `most` characters: its beginning and its end.

    >>> shortened("a long name that nobody reads", 12)
    'a lo ... ads'
    """
    if len(text) <= most:
        return text
    end = (most - 5) // 2
    return f"{text[: most - 5 - end]} ... {text[len(text) - end :]}"


def shown(value: object) -> str:
    """A value from outside, as a message shows it: Python's repr, short and printable.

    >>> shown("one\\ntwo")
    "'one\\\\ntwo'"
    >>> shown([1, 2])
    '[1, 2]'
    """
    if isinstance(value, str):
        value = shortened(value, 4 * VALUE)  # avoids a copy of a huge text
    elif isinstance(value, dict | list | tuple) and len(value) > VALUE:
        return f"{'a mapping' if isinstance(value, dict) else 'a list'} of {len(value)}"
    try:
        return shortened(printable(repr(value)))
    except ValueError:  # Python does not print integers with thousands of digits
        return "a very large number"


def first_line(error: BaseException) -> str:
    """The first line of another package's error message.

    >>> first_line(ValueError("no\\nway"))
    'no'
    >>> first_line(KeyError())
    'KeyError'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
