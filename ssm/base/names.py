"""Natural sorting of names, and the form of names on the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path

from ssm.base.errors import CheckpointError

HUB = r"\w[\w.-]*/\w[\w.-]*(@[\w./-]+)?"  # owner/model, or owner/model@revision; ./model is a path


def natural(name: str) -> list[tuple[int, str]]:
    """A sorting key that compares numbers inside names as numbers.

    >>> sorted(["lg_fig11", "lg_tab1", "lg_fig2"], key=natural)
    ['lg_fig2', 'lg_fig11', 'lg_tab1']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def require_model(name: str | Path) -> None:
    """Check that a model is a folder, a file, or can be a name of the hub. This costs nothing.

    Raises:
        CheckpointError: it is none of these.
    """
    if not (Path(name).is_dir() or Path(name).is_file() or re.fullmatch(HUB, str(name))):
        raise CheckpointError(f"{name}: no such folder or file, and not a name of the hub (owner/model)")
