"""The run that an extension continues.

A run of ssm is used directly. A checkpoint of another library becomes a run of zero steps (`ssm.training.imported`).
"""

from __future__ import annotations

from pathlib import Path

from ssm.base.records import RUN_RECORD
from ssm.models.load import LoadedModel
from ssm.specs.data import Data
from ssm.specs.training import CheckpointRef, RunSpec, TrainingSpec
from ssm.training.imported import write_imported
from ssm.training.run_record import read_record


def run_of(loaded: LoadedModel, data: Data, context: int) -> RunSpec:
    """The spec of the model's run: its own, or one of zero steps.

    Args:
        data: the tokens that the extension will read.
        context: T, the training context in tokens.
    """
    if loaded.run is not None:
        return loaded.run
    return RunSpec(
        model=loaded.spec,
        data=data,
        training=TrainingSpec.of_zero_steps(context, loaded.name),
        seed=0,
        checkpoint=CheckpointRef(name=loaded.title, fingerprint=loaded.fingerprint),
    )


def parent_folder(loaded: LoadedModel, run: RunSpec, folder: Path) -> Path:
    """The folder of the run that the extension continues.

    Args:
        run: as in `run_of`.
        folder: the folder of the run of zero steps, written if it is missing.

    Raises:
        CheckpointError: the model is a run of ssm that has not finished.
        OutputError: `folder` cannot be written.
    """
    if run.checkpoint is None:
        return own_folder(loaded)
    if not (folder / RUN_RECORD).exists():
        write_imported(loaded, run, folder)
    return folder


def own_folder(loaded: LoadedModel) -> Path:
    """The folder of a run of ssm.

    Raises:
        CheckpointError: the run has not finished.
    """
    path = Path(loaded.name)
    folder = path.parent if path.is_file() else path  # the file is the final weights
    read_record(folder)
    return folder
