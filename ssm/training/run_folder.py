"""The folder of a run, which no other run may overwrite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from ssm.base.errors import CheckpointError
from ssm.base.files import LEFTOVER, LOCK, folder_lock, make_folder, remove_leftovers
from ssm.base.records import RUN_METRICS, RUN_RECORD, RUN_WEIGHTS
from ssm.models.weights_file import digests, read_header
from ssm.specs.training import RunSpec
from ssm.training.checkpoint_file import FILE as CHECKPOINT
from ssm.training.distributed import SINGLE_PROCESS, ProcessGroup
from ssm.training.run_record import read_record

ELSEWHERE = "give another --out"


def require_own_folder(folder: Path, run: RunSpec) -> None:
    """Check that `folder` is new, or holds this run.

    Raises:
        CheckpointError: it holds another run, the folders of runs, a model that ssm did not write, or temporary files
            of others.
    """
    if (folder / RUN_RECORD).exists():
        own = read_record(folder).get("spec") == run.content()
    elif (folder / RUN_WEIGHTS).exists():
        try:
            own = read_header(folder / RUN_WEIGHTS).get("run") == run.content()
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {ELSEWHERE}") from None
    elif (folder / "config.json").exists():
        raise CheckpointError(f"{folder}: holds a model that was not written by ssm; {ELSEWHERE}")
    elif any(folder.glob(f"*/{RUN_RECORD}")):
        raise CheckpointError(f"{folder}: holds the folders of runs; give --out {folder / run.id}")
    elif _has_other_files(folder):
        raise CheckpointError(f"{folder}: holds temporary files that belong to no run; {ELSEWHERE}")
    else:
        return
    if not own:
        raise CheckpointError(f"{folder}: holds another run; {ELSEWHERE}, or delete it")


@contextmanager
def working_in(folder: Path, run: RunSpec, group: ProcessGroup = SINGLE_PROCESS) -> Iterator[None]:
    """A block in which no other job works in the folder of `run`.

    Raises:
        CheckpointError: as in `require_own_folder`.
        OutputError: the folder cannot be written.
    """
    require_own_folder(folder, run)
    if group.main:
        make_folder(folder)
    with folder_lock(folder) if group.main else nullcontext():
        if group.main:
            remove_leftovers(folder)
        group.wait()  # until the main process has locked the folder
        yield


def finished_record(folder: Path, run: RunSpec, origin: str) -> dict[str, Any] | None:
    """run.json of a finished run, whose files must not get newer; None if there is something to make.

    Args:
        origin: fingerprint of the inputs that the run has now (`ssm.training.lineage`).

    Raises:
        CheckpointError: a file is damaged or cannot be read.
    """
    if not (folder / RUN_RECORD).exists() or not (folder / RUN_METRICS).exists():
        return None
    record = read_record(folder)
    made = {"spec": run.content(), "origin": origin, "weights": digests(folder, run)}
    return record if {key: record.get(key) for key in made} == made else None


def _has_other_files(folder: Path) -> bool:
    """Whether a folder in which no run was started has temporary files, which a run would delete as its own."""
    started = (folder / LOCK).exists() or (folder / CHECKPOINT).exists()
    return not started and any(folder.rglob(LEFTOVER))
