"""Numbers with their nouns and units, and the first names of long lists."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """A number with its noun, which has an s in the plural.

    >>> counted(1, "row"), counted(2000, "step")
    ('1 row', '2,000 steps')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def first_of(names: Sequence[str], most: int, between: str = ", ") -> str:
    """The first names of a list, and the number of the others.

    >>> first_of(["a", "b", "c"], 3), first_of(["a", "b", "c", "d"], 2)
    ('a, b, c', 'a, b and 2 more')
    """
    return between.join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def short(value: float) -> str:
    """Three significant digits, with k, M or G from a thousand on.

    >>> [short(value) for value in (0.5, 12, 38214, 40e6)]
    ['0.5', '12', '38.2k', '40M']
    """
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


def size(count: float) -> str:
    """A number of bytes with two significant digits and its unit.

    >>> size(734), size(1_115_394), size(81_999), size(3.25e9)
    ('730 bytes', '1.1 MB', '82 kB', '3.2 GB')
    """
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes"))
    unit, name = next((found for found in units if count >= 0.995 * found[0]), units[-1])
    return f"{float(f'{count / unit:.2g}'):,g} {name}"
