"""Small models, corpora and runs for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from ssm.data.build import build_store
from ssm.data.store import TokenStore
from ssm.models.backbone import LanguageModel
from ssm.models.formats import FORMATS, Imported
from ssm.models.formats.read import import_source
from ssm.models.formats.source import find_source
from ssm.models.trainable import TrainableModel
from ssm.models.weights_file import save_weights
from ssm.specs.data import Data, DataSpec
from ssm.specs.model import ModelSpec
from ssm.specs.tasks import parse_data
from ssm.specs.training import RunSpec, TrainingSpec

SENTENCE = "the state of a recurrent model is all that it remembers of what it has read so far"
WORDS = SENTENCE.split(" ")


def text(number: int, words: int = 400) -> str:
    """A document with the words of SENTENCE in an order that depends on `number`."""
    return " ".join(WORDS[(i * i + number * 7 + i * number) % len(WORDS)] for i in range(words))


def make_store(folder: Path, documents: int = 24, words: int = 400, **content: Any) -> TokenStore:
    """A token store of bytes with small documents. `content` changes its spec."""
    texts = folder / "texts"
    texts.mkdir(parents=True)
    for number in range(documents):
        (texts / f"{number:03}.txt").write_text(text(number, words))
    spec = DataSpec.parse(
        {"name": "small", "corpus": {"kind": "files", "paths": [str(texts)]}, "held_out": 0.3} | content, "tests"
    )
    build_store(spec, folder / "tokens", workers=1)
    return TokenStore.open(folder / "tokens")


def content(folder: Path) -> dict[str, bytes]:
    """The content of every file in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make_task(folder: Path, **content: Any) -> TokenStore:
    """The store of a task."""
    spec = parse_data({"name": "small"} | content, "tests")
    build_store(spec, folder, workers=1)
    return TokenStore.open(folder)


def model_spec(**changes: Any) -> ModelSpec:
    mixer = {"kind": "mamba2", "d_state": 8, "head_dim": 8, "a_range": [1, 1], "dt_range": [1e-3, 1e-1], "chunk": 8}
    mixer |= changes.pop("mixer", {})
    return ModelSpec.parse(
        {"name": "tiny", "d_model": 16, "n_layers": 2, "mixer": mixer, "peak_lr": 1e-2} | changes, "tests"
    )


def run_spec(data: Data, seed: int = 3, parent: RunSpec | None = None, **training: Any) -> RunSpec:
    recipe = {"context": 16, "batch_tokens": 64, "budget": {"steps": 30}} | training
    model = parent.model if parent else model_spec()
    return RunSpec(model=model, data=data, training=TrainingSpec.parse(recipe, "tests"), seed=seed, parent=parent)


def save_model(path: Path, model: TrainableModel, run: RunSpec, step: int, origin: str) -> None:
    """`save_weights` of a model."""
    save_weights(path, dict(model.state_dict()), run, step, origin)


def write_checkpoint(model: LanguageModel, key: str, folder: Path) -> Path:
    """Write a model into a new folder, as a checkpoint of another library: the format with this key describes it."""
    form, weights = FORMATS[key], model.state_dict()
    config = form.config_of(model.spec, model.vocab_size)
    pieces = form.pieces(model.spec, {name: tuple(tensor.shape) for name, tensor in weights.items()})
    tensors = {piece.names[0]: piece.take(weights[piece.ours]).clone().contiguous() for piece in pieces}
    folder.mkdir(parents=True)
    if form.model_type is None:  # mamba_ssm, which also writes a tied head
        (embedding,), (head,) = form.names_of("embedding.weight"), form.names_of("head.weight")
        torch.save({head: tensors[embedding]} | tensors, folder / "pytorch_model.bin")
    else:
        config |= {"model_type": form.model_type, "architectures": [form.architecture]}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def import_checkpoint(name: str | Path) -> Imported:
    """`import_source` of a checkpoint that `find_source` finds."""
    return import_source(find_source(name))
