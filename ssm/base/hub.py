"""The form of names on the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path

from ssm.base.errors import CheckpointError, did_you_mean
from ssm.base.files import reading

HUB = r"\w[\w.-]*/\w[\w.-]*(@[\w./-]+)?"  # owner/model, or owner/model@revision; ./model is a path


def require_model(name: str | Path) -> None:
    """Check that a model is a folder, a file, or can be a name of the hub. This costs nothing.

    Unlike `is_name`, a folder "owner" says nothing here: without a network, it may hold some of its models.

    Raises:
        CheckpointError: it is none of these, or its folder cannot be read.
    """
    with reading(CheckpointError):
        there = Path(name).is_dir() or Path(name).is_file()
    if not (there or re.fullmatch(HUB, str(name))):
        raise CheckpointError(f"{name}: no such folder or file, and not a name of the hub (owner/model){near(name)}")


def near(name: str | Path) -> str:
    """The end of a message on a model that is not there: the nearest folder or file beside it, if one is near."""
    path = Path(name)
    hint = did_you_mean(path.name, [found.name for found in path.parent.glob("*")])
    return f"; {hint}" if hint else ""


def is_name(text: str) -> bool:
    """Whether a text that is no path names something on the hub.

    If there is a folder "owner", "owner/model" is a mistyped path in it. Asking the hub for it can take half a minute.
    With a revision, it is a name in any case.
    """
    return bool(re.fullmatch(HUB, text)) and ("@" in text or not Path(text).parent.is_dir())
