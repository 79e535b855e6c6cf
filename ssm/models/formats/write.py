"""Export: write our model as a checkpoint that another library loads. A failed export leaves no files."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from ssm.base.errors import CheckpointError, OutputError, nearest
from ssm.base.files import atomic_folder
from ssm.base.paths import is_inside
from ssm.models.backbone import Block, LanguageModel
from ssm.models.formats.format import FORMATS, Format, Piece, check_same
from ssm.models.formats.read import Imported
from ssm.models.formats.source import CARD, CONFIG, WEIGHTS, Source, index_of

HELPER = True

SHARD = 5 * 10**9  # largest size of a new file with weights, bytes


@dataclass(frozen=True)
class Target:
    """A tensor to write."""

    name: str
    piece: Piece | None  # None: our model does not use the tensor; it is copied from the original
    dtype: torch.dtype | None  # None: the same as ours


def export_checkpoint(
    model: LanguageModel, form: Imported | str, folder: Path, changes: Mapping[str, object] | None = None
) -> Path:
    """Write a model in the format of another library.

    Args:
        model: the weights, with any floating-point dtype and on any device.
        form: the import that the model came from. The export copies its names, dtypes, files, config.json, tokenizer,
            model card and unused tensors. Links to files outside the original's folder are left out and listed on
            stderr. Or the name of a format: config.json is made from the model's spec.
        folder: a new folder. It is complete, or does not exist.
        changes: what was done to the model: names and values for a section of the model card.

    Returns:
        The folder.

    Raises:
        CheckpointError: the format cannot describe the model, or a weight is not finite.
        OutputError: the folder exists, is the original's folder, or cannot be written.
    """
    source = form.source if isinstance(form, Imported) else None
    target = form.format if isinstance(form, Imported) else _format(form)
    if isinstance(form, Imported):
        check_same(model.spec, form.spec, str(folder))
        check_apart(folder, form.source.folder)
        config = _limited(form.source.config_path.read_bytes(), model, target, folder)
    else:
        config = _config(model, target)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    pieces = target.pieces(model.spec, shapes, source.stored if source else ())
    plan = _as_read(pieces, target, form.source) if isinstance(form, Imported) else _by_size(pieces, target, model)
    check_finite(model, folder)
    with atomic_folder(folder) as temporary:
        (temporary / CONFIG).write_bytes(config)
        if source:
            copy_companions(source, temporary, folder)
        size = sum(
            write_tensors(temporary / file, dict(_tensors(model, targets, source))) for file, targets in plan.items()
        )
        for file in plan:  # safetensors writes files that only their owner can read
            shutil.copymode(temporary / CONFIG, temporary / file)
        if set(plan).difference(WEIGHTS):  # a single file with an unusual name needs an index too
            _write_index(temporary, plan, size)
        card = card_of(source, target.title, changes)
        if card:
            (temporary / CARD).write_text(card, encoding="utf-8")
    return folder


@torch.no_grad()
def round_as_read(model: LanguageModel, form: Imported) -> None:
    """Round every weight, in place, to the dtype that an export would write."""
    weights = model.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    pieces = form.format.pieces(model.spec, shapes, form.source.stored)
    for target in (target for targets in _as_read(pieces, form.format, form.source).values() for target in targets):
        if target.piece is None:
            continue
        ours = weights[target.piece.ours]
        if target.dtype not in (None, ours.dtype):
            target.piece.put(ours, target.piece.take(ours).to(target.dtype).to(ours.dtype))


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise CheckpointError(f"unknown format '{name}'; {nearest(name, FORMATS)}")
    return FORMATS[name]


def check_apart(folder: Path, original: Path) -> None:
    """Check that a new folder is outside the folder of the original.

    Raises:
        OutputError: it is not.
    """
    if is_inside(folder, original):
        raise OutputError(f"{folder}: is inside the original's folder, which is never changed; choose another folder")


def check_finite(model: nn.Module, folder: Path) -> None:
    """Check that all weights are finite, before they are written to a folder.

    Raises:
        CheckpointError: some are not. The message lists them.
    """
    broken = [name for name, tensor in model.state_dict().items() if not tensor.isfinite().all()]
    if broken:
        raise CheckpointError(f"{folder}: not written, weights are not finite: {', '.join(broken)}")


def _config(model: LanguageModel, form: Format) -> bytes:
    config = form.config_of(model.spec, model.vocab_size)
    if form.model_type is not None:
        dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
        config |= {"model_type": form.model_type, "architectures": [form.architecture], "torch_dtype": dtype}
    return (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()


def _limited(config: bytes, model: LanguageModel, form: Format, folder: Path) -> bytes:
    """config.json, with the limits of dt of the layers if they differ from the model's spec.

    Raises:
        CheckpointError: the layers have different limits, or the format has none; or a layer differs in something else.
    """
    mixers: list[tuple[Any, Any]] = [
        (cast(Block, layer).mixer.spec, spec) for layer, spec in zip(model.layers, model.spec.mixers(), strict=True)
    ]
    for number, (own, spec) in enumerate(mixers):
        changed = [name for name in type(spec).model_fields if getattr(own, name) != getattr(spec, name)]
        others = [name for name in changed if name != "dt_limit"]
        if others:
            raise CheckpointError(f"{folder}: not written, because a repair changed {others} of layer {number}")
    if all(own == spec for own, spec in mixers):
        return config
    limits = {own.dt_limit for own, spec in mixers if spec.has_dt_limit}
    if len(limits) > 1 or not form.dt_limit:
        raise CheckpointError(f"{folder}: not written, because {form.title} has no limits of dt for single layers")
    low, high = limits.pop()
    content = json.loads(config)
    inner = content
    for key in form.dt_limit[:-1]:
        inner = inner[key]
    inner[form.dt_limit[-1]] = [low, math.inf if high is None else high]
    return (json.dumps(content, indent=2) + "\n").encode()


def _as_read(pieces: list[Piece], form: Format, source: Source) -> dict[str, list[Target]]:
    """File name -> its tensors, with the files and dtypes of the original."""
    plan: dict[str, list[Target]] = {}
    by_name = {name: piece for piece in pieces for name in piece.names}
    embedding = by_name[form.tied[0]]
    for name, stored in source.stored.items():
        piece = by_name.get(name, embedding if name in form.tied_heads else None)
        plan.setdefault(stored.file.name, []).append(Target(name, piece, stored.dtype))
    return plan


def _by_size(pieces: list[Piece], form: Format, model: LanguageModel) -> dict[str, list[Target]]:
    """File name -> its tensors, under their first names. There are several files if one would be too large."""
    targets = [Target(piece.names[0], piece, None) for piece in pieces]
    if form.writes_tied and model.spec.tie_embeddings:
        embedding = next(piece for piece in pieces if form.tied[0] in piece.names)
        targets.append(Target(form.tied_heads[0], embedding, None))
    shards: list[list[Target]] = [[]]
    room = SHARD
    weights = model.state_dict()
    for target in targets:
        assert target.piece is not None
        size = torch.Size(target.piece.shape).numel() * weights[target.piece.ours].element_size()
        if shards[-1] and size > room:
            shards.append([])
            room = SHARD
        shards[-1].append(target)
        room -= size
    single = WEIGHTS[0] if form.container == "safetensors" else WEIGHTS[1]
    if len(shards) == 1:
        return {single: shards[0]}
    stem, _, suffix = single.rpartition(".")
    return {f"{stem}-{i:05}-of-{len(shards):05}.{suffix}": shard for i, shard in enumerate(shards, 1)}


def _tensors(model: LanguageModel, targets: list[Target], source: Source | None) -> Iterator[tuple[str, Tensor]]:
    """Copies of the tensors of one file. Two names of one tensor share the copy."""
    weights = model.state_dict()
    written: dict[tuple[int, torch.dtype | None], Tensor] = {}
    if source is not None:
        for name, tensor in source.tensors([target.name for target in targets if target.piece is None]):
            yield name, tensor.clone().contiguous()
    for target in targets:
        if target.piece is None:
            continue
        key = (id(target.piece), target.dtype)
        if key not in written:
            tensor = target.piece.take(weights[target.piece.ours].detach().cpu())
            written[key] = tensor.to(target.dtype or tensor.dtype, copy=True).contiguous()
        yield target.name, written[key]


def copy_companions(source: Source, folder: Path, final: Path) -> None:
    """Copy the files next to the weights. Links to files outside the source's folder are listed on stderr.

    Args:
        final: the final name of the new folder, for the message.
    """
    if source.outside:
        left_out = ", ".join(source.outside)
        print(f"{final}: without {left_out}: they are links to files outside {source.folder}", file=sys.stderr)
    for path in source.companions:
        shutil.copyfile(path, folder / path.name)


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> int:
    """Write one file of weights; returns the bytes of its tensors."""
    try:
        if path.suffix == ".safetensors":
            named = {tensor.data_ptr(): name for name, tensor in tensors.items()}  # shared memory is an error there
            apart = {name: t if named[t.data_ptr()] == name else t.clone() for name, t in tensors.items()}
            save_file(apart, path, metadata={"format": "pt"})
        else:
            torch.save(tensors, path)
    except (SafetensorError, RuntimeError) as error:  # for example on a full disk
        raise OSError(str(error).splitlines()[0]) from error
    return sum(tensor.nbytes for tensor in tensors.values())


def _write_index(folder: Path, plan: dict[str, list[Target]], size: int) -> None:
    """Write the index of shards: the file of each tensor, and the bytes of all."""
    index = {
        "metadata": {"total_size": size},
        "weight_map": {target.name: file for file, targets in plan.items() for target in targets},
    }
    (folder / index_of(next(iter(plan)))).write_text(
        json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )


def card_of(source: Source | None, form: str, changes: Mapping[str, object] | None) -> str:
    """The original's model card with a section about the changes.

    Args:
        form: title of the format.
    """
    original = ""
    if source is not None and source.card is not None:
        original = source.card.read_text(encoding="utf-8", errors="replace").rstrip() + "\n"
    if not changes:
        return original
    lines = [f"- {name}: {value}" for name, value in changes.items()]
    made = f"The weights of {source.name} were changed" if source else "The weights were made"
    section = f"## Changes\n\n{made} by ssm-length and written in the format of {form}.\n\n" + "\n".join(lines)
    return f"{original}\n{section}\n" if original else f"{section}\n"
