"""The extended model, as its user had it before."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ssm.base.files import whole_folder, write_json
from ssm.extension.choice import Candidate
from ssm.models.backbone import LanguageModel
from ssm.models.checkpoint import RECORD, check_tensors, load_model
from ssm.models.foreign import ForeignModel, export_foreign, load_foreign, round_a_logs, write_weights
from ssm.models.formats import export_checkpoint, round_as_read
from ssm.models.formats.source import find_source
from ssm.models.load import WEIGHTS, LoadedModel
from ssm.models.trainable import TrainableModel
from ssm.training.lineage import read_record


def as_taken_home(loaded: LoadedModel, model: TrainableModel, scratch: Path) -> TrainableModel:
    """A model on the CPU, rounded to the types that its checkpoint has: what is measured is what is written.

    Args:
        scratch: a folder for files that are deleted again.
    """
    if isinstance(model, LanguageModel):
        if loaded.imported is not None:
            round_as_read(model, loaded.imported)
    elif loaded.foreign is not None:  # transformers alone knows which of its tensors are stored in which type
        with tempfile.TemporaryDirectory(dir=scratch, prefix=".", suffix=".tmp") as folder:
            write_weights(model, loaded.foreign, Path(folder))
            known, model = model.known, load_foreign(find_source(folder))
            model.known = known
    return model


def trial_taken_home(loaded: LoadedModel, model: TrainableModel, scratch: Path) -> TrainableModel:
    """`as_taken_home` of a trial of a repair, in which nothing of a model of transformers moved but A_log.

    All else is what its checkpoint has, so that a large model is not written and read for every trial.
    """
    if isinstance(model, ForeignModel) and loaded.foreign is not None and round_a_logs(model, loaded.foreign):
        return model
    return as_taken_home(loaded, model, scratch)


def write_as_it_came(loaded: LoadedModel, model: TrainableModel, folder: Path, changes: Mapping[str, object]) -> None:
    """Write a model in the format of the checkpoint that it came in. Errors as of `take_home`."""
    if isinstance(model, LanguageModel):
        assert loaded.imported is not None
        export_checkpoint(model, loaded.imported, folder, changes)
    else:
        assert loaded.foreign is not None
        export_foreign(model, loaded.foreign, folder, changes)


def take_home(
    loaded: LoadedModel, weights: Path, run: Path, chosen: Candidate, folder: Path, changes: Mapping[str, object]
) -> None:
    """Write the chosen weights in the format that the model came in, whole or not at all.

    Args:
        weights: where they lie.
        run: the folder of the run that they are of.
        changes: what was done, for the model's card.

    Raises:
        CheckpointError: a weight is not finite.
        OutputError: the folder is there already, or cannot be written.
    """
    if loaded.source is not None:
        model, _ = load_model(weights)
        write_as_it_came(loaded, model, folder, changes)
        return
    record = read_record(run)
    with whole_folder(folder) as temporary:
        shutil.copyfile(weights, temporary / WEIGHTS)
        said = f"step {chosen.step} of {record['budget_steps']}, chosen by ssm extend"
        tokens = record["tokens"] * chosen.step // record["steps"]
        taken = {"steps": chosen.step, "tokens": tokens, "weights": {WEIGHTS: check_tensors(temporary / WEIGHTS)}}
        write_json(temporary / RECORD, record | {"message": said} | taken)
