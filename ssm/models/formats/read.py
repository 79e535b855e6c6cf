"""Import: read a checkpoint of another library into our model, tensor by tensor."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from ssm.base.errors import CheckpointError, nearest
from ssm.models.backbone import LanguageModel
from ssm.models.formats.format import FORMATS, Format, Piece, usual_peak_lr
from ssm.models.formats.mamba_ssm import MAMBA3
from ssm.models.formats.source import Source, about_tensors
from ssm.specs.model import ModelSpec

HELPER = True

CHECKED = 2**18  # numbers that are checked at once for not being finite


@dataclass(frozen=True)
class Imported:
    """A model, its format, and its files.

    A checkpoint does not store its learning rate. The spec's peak_lr comes from the nearest size in lg Table 2.
    """

    model: LanguageModel  # on the CPU, with the dtypes of the files
    format: Format
    source: Source

    @property
    def spec(self) -> ModelSpec:
        return self.model.spec


def import_source(source: Source) -> Imported:
    """Read a checkpoint of another library. `find_source` finds its files.

    Raises:
        CheckpointError: it cannot be read, its format is unknown, or its tensors do not fit its config.json.
        ConfigError: the sizes in its config.json do not fit together.
    """
    form = format_of(source)
    spec, vocab_size = form.spec(source.config, source.title, str(source.config_path))
    model = shell(spec, vocab_size)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    placed = _placed(form, spec, form.pieces(spec, shapes, source.stored), source)

    weights: dict[str, Tensor] = {}
    broken = []
    for their_name, tensor in source.tensors(placed):
        if not _is_finite(tensor):
            broken.append(their_name)
        piece = placed[their_name]
        if piece.ours not in weights:
            weights[piece.ours] = torch.empty(shapes[piece.ours], dtype=tensor.dtype)
        piece.put(weights[piece.ours], tensor)
        del tensor
    if broken:
        raise CheckpointError(f"{source.name}: weights that are not finite: {', '.join(broken)}")
    if spec.tie_embeddings:
        _check_tied(form, source, weights["embedding.weight"])
    model.load_state_dict(weights, assign=True)
    return Imported(model, form, source)


def shell(spec: ModelSpec, vocab_size: int) -> LanguageModel:
    """A model without weights, on the meta device, with the usual peak learning rate of its size."""
    with torch.device("meta"):
        model = LanguageModel(spec, vocab_size)
    model.spec = spec.model_copy(update={"peak_lr": usual_peak_lr(model.parameters_count)})
    return model


def known_format(source: Source) -> Format | None:
    """The format of a checkpoint, according to its config.json; None: unknown.

    Raises:
        CheckpointError: it is a Mamba-3 model of fla.
    """
    if source.config.get("model_type") == "mamba3":
        raise CheckpointError(f"{source.config_path}: ssm cannot read Mamba-3: {MAMBA3}")
    found = (form for form in FORMATS.values() if form.recognizes(source.config))
    return max(found, key=lambda form: form.mark is not None, default=None)


def format_of(source: Source) -> Format:
    """The format of a checkpoint, according to its config.json.

    Raises:
        CheckpointError: its format is unknown.
    """
    form = known_format(source)
    if form is not None:
        return form
    known = sorted(form.model_type for form in FORMATS.values() if form.model_type is not None)
    kind = source.config.get("model_type")
    if kind is None:
        raise CheckpointError(
            f"{source.config_path}: has neither a model_type ({', '.join(known)}) nor the keys of mamba_ssm "
            f"({', '.join(FORMATS['mamba_ssm'].required)})"
        )
    raise CheckpointError(f"{source.config_path}: unknown architecture '{kind}'; {nearest(str(kind), known)}")


def _placed(form: Format, spec: ModelSpec, pieces: list[Piece], source: Source) -> dict[str, Piece]:
    """Name in the files -> piece, for every tensor that is read.

    Raises:
        CheckpointError: tensors are missing, unknown, or of a wrong shape or dtype.
    """
    stored = source.stored
    placed = {next((name for name in piece.names if name in stored), piece.names[0]): piece for piece in pieces}
    head = set(form.tied_heads) if spec.tie_embeddings else set()
    missing = [name for name in placed if name not in stored]
    unknown = [name for name in stored if name not in placed and name not in head and not form.is_ignored(name)]
    problems = []
    types = defaultdict(set)
    for name, piece in placed.items():
        if name not in stored:
            continue
        if stored[name].shape != piece.shape:
            problems.append(f"{name} is {stored[name].shape}, expected {piece.shape}")
        if stored[name].dtype is None:
            problems.append(f"{name} is not float16, bfloat16, float32 or float64")
        types[piece.ours].add(stored[name].dtype)
    problems += [f"the parts of {name} have several dtypes" for name, dtypes in types.items() if len(dtypes) > 1]
    wrong = about_tensors("missing ", missing) + about_tensors("unknown ", unknown) + about_tensors("", problems, "; ")
    if wrong:
        raise CheckpointError(f"{source.name}: is not a valid model of {form.title}: {'; '.join(wrong)}")
    return placed


def _check_tied(form: Format, source: Source, embedding: Tensor) -> None:
    """Check that a tied head, if the file has it, equals the embedding."""
    for name, head in source.tensors([name for name in form.tied_heads if name in source.stored]):
        if not torch.equal(head, embedding):
            raise CheckpointError(f"{source.name}: {name} differs from the embedding, but config.json ties them")


def _is_finite(tensor: Tensor) -> bool:
    return all(bool(part.isfinite().all()) for part in tensor.reshape(-1).split(CHECKED))
