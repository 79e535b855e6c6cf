"""What a run is made from, beyond its spec: the text, and the parent's weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ssm.base.errors import CheckpointError
from ssm.base.records import RUN_WEIGHTS
from ssm.data.store import TOKENIZER, TokenStore
from ssm.models.backbone import LanguageModel, build_model
from ssm.models.trainable import TrainableModel
from ssm.models.weights_file import load_model, read_header, run_of
from ssm.specs.data import FileTokenizer, HubTokenizer
from ssm.specs.training import RunSpec


def origin_of(store: TokenStore, parent: Path | None) -> str:
    """A fingerprint of the corpus, of a tokenizer's file and, through the parent's own origin, of all ancestors.

    A spec names a corpus and a tokenizer by their paths. If these files change, the spec stays the same and the origin
    changes.
    """
    inherited = "" if parent is None else read_header(parent / RUN_WEIGHTS).get("origin", "")
    content = f"{store.manifest['corpus']['sha256']}/{inherited}"
    if isinstance(store.spec.spelled_by, FileTokenizer | HubTokenizer):
        content += f"/{store.manifest['files'][TOKENIZER]['sha256']}"
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def require_parent(run: RunSpec, parent: Path | None) -> None:
    """Check that `parent` is the folder of the run's parent. Reads only the header of the weights.

    Raises:
        CheckpointError: the parent is missing, is another run, or is given without need; or the run's weights are
            imported.
    """
    if run.checkpoint is not None:
        raise CheckpointError(f"{run.id}: its weights were imported; a run of zero steps cannot be trained")
    if run.parent is None and parent is not None:
        raise CheckpointError(f"{run.id}: this run starts from no other run; leave --parent out")
    if run.parent is None:
        return
    if parent is None:
        raise CheckpointError(f"this run starts from '{run.parent.id}': give its folder as --parent")
    path = parent / RUN_WEIGHTS
    trained = run_of(read_header(path), path)
    if trained != run.parent:
        raise CheckpointError(f"{path}: holds the run '{trained.id}', expected '{run.parent.id}'")


def starting_weights(run: RunSpec, parent: Path | None) -> TrainableModel:
    """A new initialization, the parent's final weights, or a new initialization with some of the parent's layers.

    Raises:
        CheckpointError: as in `require_parent`; or the parent's weights are damaged.
    """
    require_parent(run, parent)
    if parent is None:
        return build_model(run.own_model, run.data.vocab_size, run.seed, run.data.channels)
    model, _ = load_model(parent / RUN_WEIGHTS)
    if run.layer is None:
        return model
    assert isinstance(model, LanguageModel)  # RunSpec allows `layer` only for these
    fresh = build_model(run.own_model, run.data.vocab_size, run.seed, run.data.channels)
    for layer, taken in zip(fresh.layers, run.taken, strict=True):
        layer.load_state_dict(model.layers[taken - 1].state_dict())
    return fresh
