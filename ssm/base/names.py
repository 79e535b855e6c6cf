"""Natural sorting of names."""

from __future__ import annotations

import re


def natural(name: str) -> list[tuple[int, str]]:
    """A sorting key that compares numbers inside names as numbers.

    >>> sorted(["lg_fig11", "lg_tab1", "lg_fig2"], key=natural)
    ['lg_fig2', 'lg_fig11', 'lg_tab1']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]
