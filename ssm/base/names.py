"""Natural sorting of names, and the form of names on the Hugging Face hub."""

from __future__ import annotations

import re

HUB = r"[\w.-]+/[\w.-]+(@[\w./-]+)?"  # owner/model, or owner/model@revision


def natural(name: str) -> list[tuple[int, str]]:
    """A sorting key that compares numbers inside names as numbers.

    >>> sorted(["lg_fig11", "lg_tab1", "lg_fig2"], key=natural)
    ['lg_fig2', 'lg_fig11', 'lg_tab1']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]
