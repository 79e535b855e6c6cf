"""Numbers with their nouns, and the first names of long lists."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """A number with its noun, which has an s in the plural.

    >>> counted(1, "row"), counted(2000, "step")
    ('1 row', '2,000 steps')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def first_of(names: Sequence[str], most: int) -> str:
    """The first names of a list, and the number of the others.

    >>> first_of(["a", "b", "c"], 3), first_of(["a", "b", "c", "d"], 2)
    ('a, b, c', 'a, b and 2 more')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
