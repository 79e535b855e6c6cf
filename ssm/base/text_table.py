"""Tables of plain text for the terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence

GAP = "  "  # between two columns


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """The rows as lines. Columns are aligned right, and those with the indices in `left` are aligned left.

    >>> aligned([["name", "size"], ["a", "12"]], left=(0,))
    ['name  size', 'a       12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ["<" if i in left else ">" for i in range(len(widths))]
    return [
        GAP.join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]
