"""Write the extended model in the format of the original."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ssm.base.files import atomic_folder, write_json
from ssm.base.records import RUN_RECORD, RUN_WEIGHTS
from ssm.extension.choice import Candidate
from ssm.models.backbone import LanguageModel
from ssm.models.foreign import ForeignModel, export_foreign, load_foreign, round_a_logs, write_weights
from ssm.models.formats import export_checkpoint, round_as_read
from ssm.models.formats.source import find_source
from ssm.models.load import LoadedModel
from ssm.models.trainable import TrainableModel
from ssm.models.weights_file import check_tensors, load_model
from ssm.training.run_record import read_record


def as_exported(loaded: LoadedModel, model: TrainableModel, scratch: Path) -> TrainableModel:
    """Round a model on the CPU to the data types of its checkpoint, so that the measured model is the written one.

    Args:
        scratch: a folder for temporary files.
    """
    if isinstance(model, LanguageModel):
        if loaded.imported is not None:
            round_as_read(model, loaded.imported)
    elif loaded.foreign is not None:  # only transformers keeps the stored type of each tensor
        with tempfile.TemporaryDirectory(dir=scratch, prefix=".", suffix=".tmp") as folder:
            write_weights(model, loaded.foreign, Path(folder))
            known, model = model.known, load_foreign(find_source(folder))
            model.known = known
    return model


def trial_as_exported(loaded: LoadedModel, model: TrainableModel, scratch: Path) -> TrainableModel:
    """`as_exported` for a trial of a repair. In a model of transformers, a repair changes only A_log.

    So only A_log is rounded, and a large model is not written and read for every trial.
    """
    if isinstance(model, ForeignModel) and loaded.foreign is not None and round_a_logs(model, loaded.foreign):
        return model
    return as_exported(loaded, model, scratch)


def write_exported(loaded: LoadedModel, model: TrainableModel, folder: Path, changes: Mapping[str, object]) -> None:
    """Write a model in the format of its checkpoint. Errors as in `write_chosen`."""
    if isinstance(model, LanguageModel):
        assert loaded.imported is not None
        export_checkpoint(model, loaded.imported, folder, changes)
    else:
        assert loaded.foreign is not None
        export_foreign(model, loaded.foreign, folder, changes)


def write_chosen(
    loaded: LoadedModel, weights: Path, run: Path, chosen: Candidate, folder: Path, changes: Mapping[str, object]
) -> None:
    """Write the chosen weights in the format of the original. The folder appears when it is complete.

    Args:
        weights: the file of the chosen weights.
        run: the folder of the run that trained them.
        changes: what was done, for the model's card.

    Raises:
        CheckpointError: a weight is not finite.
        OutputError: the folder exists, or cannot be written.
    """
    if loaded.source is not None:
        model, _ = load_model(weights)
        write_exported(loaded, model, folder, changes)
        return
    record = read_record(run)
    with atomic_folder(folder) as temporary:
        shutil.copyfile(weights, temporary / RUN_WEIGHTS)
        message = f"step {chosen.step} of {record['budget_steps']}, chosen by ssm extend"
        tokens = record["tokens"] * chosen.step // record["steps"]
        taken = {
            "steps": chosen.step,
            "tokens": tokens,
            "weights": {RUN_WEIGHTS: check_tensors(temporary / RUN_WEIGHTS)},
        }
        write_json(temporary / RUN_RECORD, record | {"message": message} | taken)
