"""Sizes for readers."""

from __future__ import annotations


def size(count: float) -> str:
    """A number of bytes with two significant digits and its unit.

    >>> size(734), size(1_115_394), size(81_999), size(3.25e9)
    ('730 bytes', '1.1 MB', '82 kB', '3.2 GB')
    """
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes"))
    unit, name = next((found for found in units if count >= 0.995 * found[0]), units[-1])
    return f"{float(f'{count / unit:.2g}'):,g} {name}"
