"""Open a user's model: a run of ssm, a checkpoint of a known format, or another model of transformers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ssm.base.counting import size
from ssm.base.errors import CheckpointError, first_line, is_lack_of_memory
from ssm.base.files import reading
from ssm.base.records import RUN_RECORD, RUN_WEIGHTS
from ssm.base.safetensors_header import safetensors_header
from ssm.models.families import NO_STATE
from ssm.models.foreign import ForeignModel, load_foreign
from ssm.models.formats import Imported, known_format
from ssm.models.formats.read import import_source
from ssm.models.formats.source import CONFIG, Source, find_config, find_source
from ssm.models.trainable import TrainableModel
from ssm.models.weights_file import load_model, read_header, run_of
from ssm.specs.data import BpeTokenizer, BytesTokenizer, FileTokenizer, TokenizerSpec
from ssm.specs.foreign import AnyModel
from ssm.specs.training import RunSpec

TOKENIZER = "tokenizer.json"
# Files of tokenizers. ssm reads only the first.
TOKENIZER_FILES = (
    *(TOKENIZER, "tokenizer_config.json", "tokenizer.model", "spiece.model"),
    *("vocab.json", "vocab.txt", "merges.txt"),
)
BYTES, MOST_ROWS_OF_BYTES = 256, 341  # bytes use at least three quarters of the rows, as `ssm.data.own_text` requires
REPAIRED = "it was repaired without training; extend the run that it was made from"
NOT_FINAL = "it is a file other than the final weights of a run; give the folder of the run"
QUANTIZED = "its weights are quantized, and an export would change them"
CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "context_length",
    "n_ctx",
    "max_sequence_length",
    "max_seq_len",
    "model_max_length",
)


@dataclass(frozen=True)
class LoadedModel:
    """A model to measure, with its origin and tokenizer."""

    name: str  # given by the user
    title: str  # a short name
    model: TrainableModel  # in evaluation mode and float32
    kind: str  # for readers
    context: int | None  # training context in tokens, if its files have it
    tokenizer: TokenizerSpec | None  # None: not found
    fingerprint: str  # 16 hex digits of a SHA-256 of config.json and the weights
    why_not_extend: str | None  # the reason, for messages; None: it can be extended
    note: str | None = None  # about its tokenizer, for messages
    longest: int | None = None  # where its positions end or change, in tokens; None: nowhere
    run: RunSpec | None = None  # a run of ssm
    imported: Imported | None = None  # the import of a known format, which can be exported
    foreign: Source | None = None  # the files of a model that uses transformers' forward pass

    @property
    def source(self) -> Source | None:
        """The files of a checkpoint of another library; None: it is a run of ssm."""
        return self.foreign if self.imported is None else self.imported.source

    @property
    def library(self) -> str | None:
        """The other library that loads it; None: it is a run of ssm."""
        if self.imported is not None:
            return self.imported.format.library
        return None if self.foreign is None else "transformers"

    @property
    def described_by(self) -> str:
        """Its files that give the context, for messages."""
        return "files" if self.source is None else "config.json"

    @property
    def only_repaired(self) -> bool:
        """Whether it cannot be trained, but its A can be scaled."""
        model = self.model
        if not isinstance(model, ForeignModel) or model.untrainable is None:
            return False
        return self.why_not_extend == model.untrainable and bool(model.spec.decays)

    def default_precision(self, device: torch.device) -> str:
        """bfloat16 on a GPU, if recurrences stay in float32 under autocast; else float32."""
        keeps = not isinstance(self.model, ForeignModel) or self.model.keeps_scans
        return "bfloat16" if device.type == "cuda" and keeps else "float32"

    @property
    def spec(self) -> AnyModel:
        return self.model.spec


@dataclass(frozen=True)
class ModelOutline:
    """What is known about a model before its weights are read: enough to check settings."""

    name: str  # given by the user
    context: int | None  # training context in tokens, if its files have it
    described_by: str  # as in LoadedModel
    longest: None = None  # only the loaded model tells

    def default_precision(self, device: torch.device) -> str:
        """The precision that every model has."""
        return "float32"


@reading(CheckpointError)
def outline_of(name: str | Path) -> ModelOutline:
    """Find a model, and read its training context. Arguments and errors are those of `load_any_model`."""
    own = _own_weights(Path(name))
    if own is not None:
        return ModelOutline(str(name), run_of(read_header(own), own).training.context, "files")
    return ModelOutline(str(name), context_of(find_config(name)), "config.json")


@reading(CheckpointError)
def load_any_model(name: str | Path, device: torch.device | str = "cpu") -> LoadedModel:
    """Open a model.

    Args:
        name: a run of ssm: its folder, or a file of its weights. Or a checkpoint of another library: a folder, a file
            of weights next to its config.json, or a model of the hub ("owner/model", "owner/model@revision").
        device: the device of the model.

    Raises:
        CheckpointError: it cannot be found or read, its kind is unknown, or it cannot read a sequence in pieces; or the
            device has too little memory for its weights.
        ConfigError: the sizes in its config.json do not fit together.
    """
    own = _own_weights(Path(name))
    if own is not None:
        with _fitting(str(name), lambda: _numbers_in(own), device):
            return _load_run(str(name), own, device)
    source = find_source(name)
    with _fitting(str(name), lambda: sum(math.prod(tensor.shape) for tensor in source.stored.values()), device):
        return _load_source(source, device)


@contextmanager
def _fitting(name: str, numbers: Callable[[], int], device: torch.device | str) -> Iterator[None]:
    """Raise a lack of memory as a CheckpointError with the size of the weights. No option of a command needs less.

    Args:
        numbers: the count of all numbers in the weights.
    """
    try:
        yield
    except Exception as error:
        if not is_lack_of_memory(error):
            raise
        on_cpu = torch.device(device).type == "cpu"
        other = "a machine with more memory" if on_cpu else "--device cpu, or a GPU with more memory"
        needed = f"its weights need {size(4 * numbers())} in float32"
        raise CheckpointError(f"{name}: out of memory ({first_line(error)}); {needed}; use {other}") from error


def _numbers_in(weights: Path) -> int:
    header = safetensors_header(weights, CheckpointError)
    return sum(math.prod(entry["shape"]) for tensor, entry in header.items() if tensor != "__metadata__")


def _load_source(source: Source, device: torch.device | str) -> LoadedModel:
    form = known_format(source)
    if form is None and "model_type" in source.config:
        return _load_foreign(source, device)
    if form is not None and form.library == "transformers":
        try:
            form.spec(source.config, source.title, str(source.config_path))
        except CheckpointError as variant:  # that our model does not support
            try:
                return _load_foreign(source, device)
            except CheckpointError as error:
                raise CheckpointError(f"{variant}; transformers cannot read it either: {error}") from error
    return _load_imported(source, device)


def _own_weights(path: Path) -> Path | None:
    """The weights of a run of ssm; None: it is something else."""
    file = path / RUN_WEIGHTS if path.is_dir() else path
    if file != path and (path / RUN_RECORD).is_file() and not (path / CONFIG).exists():
        return file  # also if the weights are broken or missing: load_model reports that
    try:
        return file if "ssm" in safetensors_header(file, CheckpointError).get("__metadata__", {}) else None
    except CheckpointError:
        return None


def _load_run(name: str, weights: Path, device: torch.device | str) -> LoadedModel:
    model, run = load_model(weights, device)
    if run.data.channels is not None:
        raise CheckpointError(f"{name}: reads the numbers of '{run.data.name}', not tokens, so it cannot read text")
    tokenizer = run.data.spelled_by
    trained = isinstance(tokenizer, BpeTokenizer)
    note = f"its tokenizer.json is in the token store of '{run.data.id}'" if trained else None
    why_not = _why_not(run.model) or (None if weights.name == RUN_WEIGHTS else NOT_FINAL)
    return LoadedModel(
        name=name,
        title=run.model.name,
        model=model.eval(),
        kind="a run of ssm",
        context=run.training.context,
        run=run,
        tokenizer=None if trained else tokenizer,
        fingerprint=_fingerprint([weights]),
        why_not_extend=REPAIRED if run.repair is not None else why_not,
        note="its tokens do not represent text" if tokenizer is None else note,
    )


def _load_imported(source: Source, device: torch.device | str) -> LoadedModel:
    imported = import_source(source)
    tokenizer, note = _tokenizer(source, imported.model.vocab_size)
    return LoadedModel(
        name=source.name,
        title=source.title,
        model=imported.model.float().to(device).eval(),
        kind=imported.format.title,
        context=context_of(source.config),
        imported=imported,
        tokenizer=tokenizer,
        fingerprint=_fingerprint((source.config_path, *source.files)),
        why_not_extend=_why_not(imported.spec),
        note=note,
    )


def _load_foreign(source: Source, device: torch.device | str) -> LoadedModel:
    model = load_foreign(source, device)
    tokenizer, note = _tokenizer(source, model.vocab_size)
    context = context_of(source.config)
    return LoadedModel(
        name=source.name,
        title=source.title,
        model=model,
        kind=model.kind,
        context=context,
        longest=model.longest(context),
        tokenizer=tokenizer,
        fingerprint=_fingerprint((source.config_path, *source.files)),
        why_not_extend=_why_not_foreign(model, source),
        note=note,
        foreign=source,
    )


def _why_not_foreign(model: ForeignModel, source: Source) -> str | None:
    if not model.is_recurrent:
        return NO_STATE
    return QUANTIZED if source.config.get("quantization_config") else model.untrainable


def _why_not(spec: AnyModel) -> str | None:
    """Post-training from states other than zero needs a layer with a state of fixed size."""
    return NO_STATE if len(spec.endless) == spec.n_layers else None


def _tokenizer(source: Source, vocab_size: int) -> tuple[TokenizerSpec | None, str | None]:
    """The tokenizer in the folder of the weights, and a note about it."""
    if (source.folder / TOKENIZER).is_file():
        path = (source.folder / TOKENIZER).absolute()
        return FileTokenizer(path=str(path), vocab_size=vocab_size), None
    others = [name for name in TOKENIZER_FILES if (source.folder / name).exists()]
    if others:
        return None, f"its tokenizer is {', '.join(sorted(others))}, but ssm reads only a tokenizer.json"
    if BYTES <= vocab_size <= MOST_ROWS_OF_BYTES:
        note = f"it has no tokenizer and {vocab_size} rows in its embedding: its tokens are bytes"
        return BytesTokenizer(vocab_size=vocab_size), note
    return None, "its folder has no tokenizer.json"


def context_of(config: Mapping[str, Any]) -> int | None:
    """The training context in a config.json, or in its part about text, in tokens; None: it has none."""
    parts = (config, config.get("text_config"))
    values = (part.get(key) for part in parts if isinstance(part, Mapping) for key in CONTEXT_KEYS)
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def _fingerprint(files: Sequence[Path]) -> str:
    """A digest of the contents of all files."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
