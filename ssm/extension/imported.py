"""The model to be extended as the run that its extension continues.

A run of ours is one already. A checkpoint of another library becomes a run of zero steps (`ssm.training.imported`).
"""

from __future__ import annotations

from pathlib import Path

from ssm.base.errors import CheckpointError, ConfigError
from ssm.models.checkpoint import RECORD
from ssm.models.load import WEIGHTS, LoadedModel
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import Data, DataSpec, TokenizerSpec
from ssm.specs.training import CheckpointRef, RunSpec, TrainingSpec
from ssm.training.imported import write_imported
from ssm.training.lineage import read_record


def check_vocabulary(loaded: LoadedModel, tokenizer: TokenizerSpec) -> None:
    """A run's embedding has a row for every token of its data, and no more.

    Raises:
        ConfigError: the tokenizer has another number of tokens than the model's vocabulary.
    """
    tokens = DataSpec(name="text", corpus=FilesCorpus(paths=("",)), tokenizer=tokenizer).vocab_size
    if tokens != loaded.model.vocab_size:
        raise ConfigError(
            f"{loaded.name}: its vocabulary has {loaded.model.vocab_size:,} tokens and the text's {tokens:,}; to be "
            "extended it needs as many"
        )


def run_of(loaded: LoadedModel, data: Data, context: int) -> RunSpec:
    """What the model says of itself as a run: its own spec, or that of a run of zero steps.

    Args:
        data: the tokens that it will read.
        context: T, tokens that it was trained on.
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
        run: as of `run_of`.
        folder: where the run of zero steps is written, unless it is there.

    Raises:
        CheckpointError: a run of ours that was given as a file, or that has not finished.
        OutputError: `folder` cannot be written.
    """
    if run.checkpoint is None:
        return own_folder(loaded)
    if not (folder / RECORD).exists():
        write_imported(loaded, run, folder)
    return folder


def own_folder(loaded: LoadedModel) -> Path:
    """The folder of a run of ours.

    Raises:
        CheckpointError: it was given as another file than the final weights in it, or the run has not finished.
    """
    path = Path(loaded.name)
    folder = path.parent if path.name == WEIGHTS and path.is_file() else path
    if not folder.is_dir():
        raise CheckpointError(f"{loaded.name}: to be extended, give the folder of the run whose {WEIGHTS} it is")
    read_record(folder)
    return folder
