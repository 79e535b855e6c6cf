"""The extended model, as its user had it before."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from ssm.base.files import whole_folder, write_json
from ssm.extension.choice import Candidate
from ssm.models.checkpoint import RECORD, check_tensors, load_model
from ssm.models.foreign import ForeignModel, export_foreign
from ssm.models.formats import export_checkpoint
from ssm.models.opening import WEIGHTS, Opened
from ssm.training.origin import read_record


def take_home(
    opened: Opened, weights: Path, run: Path, chosen: Candidate, folder: Path, changes: Mapping[str, object]
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
    if opened.source is not None:
        model, _ = load_model(weights)
        if isinstance(model, ForeignModel):
            export_foreign(model, opened.source, folder, changes)
        else:
            assert opened.imported is not None
            export_checkpoint(model, opened.imported, folder, changes)
        return
    record = read_record(run)
    with whole_folder(folder) as temporary:
        shutil.copyfile(weights, temporary / WEIGHTS)
        said = f"step {chosen.step} of {record['budget_steps']}, chosen by ssm extend"
        tokens = record["tokens"] * chosen.step // record["steps"]
        taken = {"steps": chosen.step, "tokens": tokens, "weights": {WEIGHTS: check_tensors(temporary / WEIGHTS)}}
        write_json(temporary / RECORD, record | {"message": said} | taken)
