"""Weights from elsewhere as a run of zero steps, so that measurements read them like any other run."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from torch import Tensor

from ssm.base.errors import CheckpointError, shown
from ssm.base.files import write_json
from ssm.base.paths import home_expanded
from ssm.base.records import RUN_RECORD, RUN_WEIGHTS
from ssm.data.tokenizers import JsonTokenizer, make_tokenizer
from ssm.models.backbone import LanguageModel
from ssm.models.foreign import ForeignModel
from ssm.models.formats.format import differences
from ssm.models.load import LoadedModel, load_any_model
from ssm.models.weights_file import digests, run_folder, save_weights, snapshot_path
from ssm.specs.data import Data, FileTokenizer, HubTokenizer
from ssm.specs.model import ModelSpec
from ssm.specs.training import RunSpec
from ssm.training.run_folder import working_in
from ssm.training.run_record import divergence, read_record, run_record


def import_run(run: RunSpec, folder: Path) -> dict[str, Any]:
    """Fill the folder of a run of zero steps with the weights that its spec names; returns the content of run.json.

    Writes model.safetensors in float32 and, last of all, run.json. A call after a kill writes both again.

    Raises:
        CheckpointError: the run is a trained one; its weights cannot be found or read, or belong to another model or
            vocabulary; ssm does not implement their model; the folder holds another run.
        ConfigError, DataError: a config.json or a tokenizer cannot be read.
    """
    if run.checkpoint is None:
        raise CheckpointError(f"{run.id}: this run is trained by `ssm train`; it has no weights to import")
    loaded = load_any_model(home_expanded(run.checkpoint.name))
    _check_tokenizer(loaded, run.data)
    return write_imported(loaded, run, folder)


def write_imported(loaded: LoadedModel, run: RunSpec, folder: Path) -> dict[str, Any]:
    """`import_run` for a model that is already loaded."""
    model, checkpoint = loaded.model, run.checkpoint
    assert checkpoint is not None
    if isinstance(model, ForeignModel):
        if isinstance(run.model, ModelSpec):
            raise CheckpointError(
                f"{loaded.name}: {loaded.kind}; `ssm diagnose` can read it, but this run needs a model of ssm"
            )
        if run.model != loaded.spec:
            raise CheckpointError(f"{loaded.name}: is not the model '{run.model.name}': its config.json differs")
    if checkpoint.fingerprint not in (None, loaded.fingerprint):
        raise CheckpointError(
            f"{loaded.name}: its files have changed: the fingerprint was {checkpoint.fingerprint} and is now "
            f"{loaded.fingerprint}"
        )
    vocabulary = rows = run.data.vocab_size
    if isinstance(model, LanguageModel):
        _check_model(model.spec, run.own_model, loaded.name)
        rows = run.own_model.embedding_rows(vocabulary)
    if model.vocab_size not in (vocabulary, rows):  # GPT-NeoX counts the embedding rows
        raise CheckpointError(
            f"{loaded.name}: its vocabulary has {model.vocab_size:,} tokens, but the data set '{run.data.name}' has "
            f"{vocabulary:,}"
        )
    weights = dict(model.state_dict())
    if isinstance(model, LanguageModel):
        weights = {name: _rows_as(tensor, name, model, run) for name, tensor in weights.items()}
    with working_in(folder, run):
        save_weights(folder / RUN_WEIGHTS, weights, run, 0, loaded.fingerprint)
        parameters = sum(weights[name].numel() for name, _ in model.named_parameters())
        record = run_record(run, loaded.fingerprint, parameters, f"imported from {loaded.name}") | {
            "diverged": _diverged(loaded),
            "published": {"name": loaded.name, "revision": _revision(loaded), "fingerprint": loaded.fingerprint},
            "weights": digests(folder, run),
        }
        write_json(folder / RUN_RECORD, record)
    return record


def _check_model(found: ModelSpec, wanted: ModelSpec, name: str) -> None:
    """Check that the weights belong to the run's model. Fields that change no computation may differ.

    Raises:
        CheckpointError: lists every difference; the same difference in several layers once.
    """
    same: dict[tuple[str, str], list[str]] = defaultdict(list)  # (key, values) -> layers
    for key, here, there in differences(wanted, found):
        layer, key = key.split(".", 2)[1:] if key.startswith("layers.") else ("", key)
        if key != "state_shape":  # follows from other fields
            same[key, f"{shown(there)}, not {shown(here)}"].append(layer)
    if same:
        words = []
        for (key, values), layers in same.items():
            at = f" of layer {', '.join(layers)}" if layers != [""] and len(layers) < wanted.n_layers else ""
            words.append(f"{key}{at} is {values}")
        raise CheckpointError(f"{name}: is not the model '{wanted.name}': {'; '.join(words)}")


def _check_tokenizer(loaded: LoadedModel, data: Data) -> None:
    """Check that the weights use the run's tokenizer, as far as the files next to them show it.

    Raises:
        CheckpointError: their tokenizer numbers the tokens differently.
        DataError: a tokenizer cannot be read.
    """
    name, ours, theirs = loaded.name, data.spelled_by, loaded.tokenizer
    if ours is None:  # a task whose tokens represent no text: only their number matters
        return
    other = f"the data set '{data.name}' uses another tokenizer ({ours.kind})"
    if loaded.run is not None:
        trained = loaded.run.data
        if trained.spelling != data.spelling:
            raise CheckpointError(f"{name}: was trained on tokens of '{trained.id}'; {other}")
    elif isinstance(theirs, FileTokenizer):
        if not isinstance(ours, FileTokenizer | HubTokenizer):
            raise CheckpointError(f"{name}: comes with {theirs.path}; {other}")
        here, there = _numbers(ours), _numbers(theirs)
        wrong = [token for token, number in here.items() if there.get(token) != number]
        if wrong:
            raise CheckpointError(
                f"{name}: comes with {theirs.path}, with other numbers for {len(wrong):,} of {len(here):,} tokens of "
                f"the data set '{data.name}', for example {shown(min(wrong))}"
            )


def _numbers(spec: FileTokenizer | HubTokenizer) -> dict[str, int]:
    """Token -> its number."""
    tokenizer = make_tokenizer(spec, iter(()))
    assert isinstance(tokenizer, JsonTokenizer)
    return dict(tokenizer.inner.get_vocab(with_added_tokens=True))


def _rows_as(tensor: Tensor, name: str, model: LanguageModel, run: RunSpec) -> Tensor:
    """Embedding and head with the run's number of rows. Rows beyond the vocabulary are never used."""
    if name not in ("embedding.weight", "head.weight"):
        return tensor
    resized = tensor.new_zeros(run.own_model.embedding_rows(model.vocab_size), tensor.shape[1])  # (rows, D)
    resized[: model.vocab_size] = tensor[: model.vocab_size]
    return resized


def _diverged(loaded: LoadedModel) -> str | None:
    """The divergence that the run's record reports, for weights of one of our runs."""
    path = Path(loaded.name)
    folder = path if path.is_dir() else run_folder(path)
    if loaded.run is None or not (folder / RUN_RECORD).is_file():
        return None
    snapshots = loaded.run.training.snapshots
    snapshot = next((at for at in snapshots if snapshot_path(folder, at) == path), None)
    diverged = divergence(read_record(folder), snapshot)
    return diverged and f"its weights are from a run that {diverged}"


def _revision(loaded: LoadedModel) -> str | None:
    """The commit in the path of the hub's cache: snapshots/<revision>."""
    folder = loaded.source.folder if loaded.source is not None else Path()
    return folder.name if folder.parent.name == "snapshots" else None
