"""The model to be extended as the run that its extension continues.

A run of ours is one already. A checkpoint of another library becomes a run of zero steps (`ssm.training.imported`).
"""

from __future__ import annotations

from pathlib import Path

from ssm.base.errors import CheckpointError, ConfigError
from ssm.models.checkpoint import RECORD
from ssm.models.opening import WEIGHTS, Opened
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import Data, DataSpec, TokenizerSpec
from ssm.specs.training import CheckpointRef, RunSpec, TrainingSpec
from ssm.training.imported import write_imported
from ssm.training.origin import read_record


def check_vocabulary(opened: Opened, tokenizer: TokenizerSpec) -> None:
    """A run's embedding has a row for every token of its data, and no more.

    Raises:
        ConfigError: the tokenizer has another number of tokens than the model's vocabulary.
    """
    tokens = DataSpec(name="text", corpus=FilesCorpus(paths=("",)), tokenizer=tokenizer).vocab_size
    if tokens != opened.model.vocab_size:
        raise ConfigError(
            f"{opened.name}: its vocabulary has {opened.model.vocab_size:,} tokens and the text's {tokens:,}; to be "
            "extended it needs as many"
        )


def run_of(opened: Opened, data: Data, context: int) -> RunSpec:
    """What the model says of itself as a run: its own spec, or that of a run of zero steps.

    Args:
        data: the tokens that it will read.
        context: T, tokens that it was trained on.
    """
    if opened.run is not None:
        return opened.run
    return RunSpec(
        model=opened.spec,
        data=data,
        training=TrainingSpec.of_zero_steps(context, opened.name),
        seed=0,
        checkpoint=CheckpointRef(name=opened.title, fingerprint=opened.fingerprint),
    )


def parent_folder(opened: Opened, run: RunSpec, folder: Path) -> Path:
    """The folder of the run that the extension continues.

    Args:
        run: as of `run_of`.
        folder: where the run of zero steps is written, unless it is there.

    Raises:
        CheckpointError: a run of ours that was given as a file, or that has not finished.
        OutputError: `folder` cannot be written.
    """
    if run.checkpoint is None:
        return own_folder(opened)
    if not (folder / RECORD).exists():
        write_imported(opened, run, folder)
    return folder


def own_folder(opened: Opened) -> Path:
    """The folder of a run of ours.

    Raises:
        CheckpointError: it was given as another file than the final weights in it, or the run has not finished.
    """
    path = Path(opened.name)
    folder = path.parent if path.name == WEIGHTS and path.is_file() else path
    if not folder.is_dir():
        raise CheckpointError(f"{opened.name}: to be extended, give the folder of the run whose {WEIGHTS} it is")
    read_record(folder)
    return folder
