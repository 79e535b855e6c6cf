"""The folder of a run, which no other run may overwrite."""

from __future__ import annotations

from pathlib import Path

from ssm.base.errors import CheckpointError
from ssm.models.checkpoint import RECORD, read_header
from ssm.models.load import WEIGHTS
from ssm.specs.training import RunSpec
from ssm.training.lineage import read_record

ELSEWHERE = "give another --out"


def require_own_folder(folder: Path, run: RunSpec) -> None:
    """Check that `folder` is new, or holds this run.

    Raises:
        CheckpointError: it holds another run, or a model that ssm did not write.
    """
    if (folder / RECORD).exists():
        own = read_record(folder).get("spec") == run.content()
    elif (folder / WEIGHTS).exists():
        try:
            own = read_header(folder / WEIGHTS).get("run") == run.content()
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {ELSEWHERE}") from None
    elif (folder / "config.json").exists():
        raise CheckpointError(f"{folder}: holds a model that was not written by ssm; {ELSEWHERE}")
    else:
        return
    if not own:
        raise CheckpointError(f"{folder}: holds another run; {ELSEWHERE}, or delete it")
