"""Names as people sort them, and as the hub spells them."""

from __future__ import annotations

import re

HUB = r"[\w.-]+/[\w.-]+(@[\w./-]+)?"  # owner/model, or owner/model@revision


def natural(name: str) -> list[tuple[int, str]]:
    """A sorting key under which numbers inside names count as numbers.

    >>> sorted(["lg_fig11", "lg_tab1", "lg_fig2"], key=natural)
    ['lg_fig2', 'lg_fig11', 'lg_tab1']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]
