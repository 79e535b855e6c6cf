"""Export: write our model as a checkpoint that another library loads. A failed export leaves no files."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from ssm.base.errors import CheckpointError, OutputError
from ssm.base.files import atomic_folder
from ssm.base.paths import is_inside
from ssm.models.backbone import Block, LanguageModel
from ssm.models.formats.format import Piece, check_same
from ssm.models.formats.read import Imported
from ssm.models.formats.source import CARD, CONFIG, WEIGHTS, Source, index_of

HELPER = True

Plan = dict[str, dict[str, Piece | None]]  # file -> names of its tensors -> our part; None: our model does not use it


def export_checkpoint(
    model: LanguageModel, imported: Imported, folder: Path, changes: Mapping[str, object] | None = None
) -> Path:
    """Write a model in the format of the checkpoint that it came from.

    The export copies the original's names, dtypes, files, config.json, tokenizer, model card and unused tensors. Links
    to files outside the original's folder are left out and listed on stderr.

    Args:
        model: the weights, with any floating-point dtype and on any device.
        imported: the import that the model came from.
        folder: a new folder. It is complete, or does not exist.
        changes: what was done to the model: names and values for a section of the model card.

    Returns:
        The folder.

    Raises:
        CheckpointError: the format cannot describe the model, or a weight is not finite.
        OutputError: the folder exists, is the original's folder, or cannot be written.
    """
    source = imported.source
    check_same(model.spec, imported.spec, str(folder))
    check_apart(folder, source.folder)
    _check_mixers(model, folder)
    plan = _plan(model, imported)
    check_finite(model, folder)
    with atomic_folder(folder) as temporary:
        (temporary / CONFIG).write_bytes(source.config_path.read_bytes())
        copy_companions(source, temporary, folder)
        size = sum(
            write_tensors(temporary / file, dict(_tensors(model, pieces, source))) for file, pieces in plan.items()
        )
        for file in plan:  # safetensors writes files that only their owner can read
            shutil.copymode(temporary / CONFIG, temporary / file)
        if set(plan).difference(WEIGHTS):  # a single file with an unusual name needs an index too
            _write_index(temporary, plan, size)
        card = card_of(source, imported.format.title, changes)
        if card:
            (temporary / CARD).write_text(card, encoding="utf-8")
    return folder


@torch.no_grad()
def round_as_read(model: LanguageModel, imported: Imported) -> None:
    """Round every weight, in place, to the dtype that an export would write."""
    weights = model.state_dict()
    for pieces in _plan(model, imported).values():
        for name, piece in pieces.items():
            if piece is None:
                continue
            ours, dtype = weights[piece.ours], imported.source.stored[name].dtype
            if dtype != ours.dtype:
                piece.put(ours, piece.take(ours).to(dtype).to(ours.dtype))


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


def _check_mixers(model: LanguageModel, folder: Path) -> None:
    """Check that every mixer has the settings of the model's spec, as the original's config.json says.

    Raises:
        CheckpointError: one did.
    """
    for number, (layer, spec) in enumerate(zip(model.layers, model.spec.mixers(), strict=True)):
        own: Any = cast(Block, layer).mixer.spec
        changed = [name for name in type(spec).model_fields if getattr(own, name) != getattr(spec, name)]
        if changed:
            raise CheckpointError(f"{folder}: not written, because a repair changed {changed} of layer {number}")


def _plan(model: LanguageModel, imported: Imported) -> Plan:
    """The files of an export, and their tensors: those of the original."""
    source, form = imported.source, imported.format
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    by_name = {name: piece for piece in form.pieces(model.spec, shapes, source.stored) for name in piece.names}
    tied = dict.fromkeys(form.tied_heads, by_name[form.names_of("embedding.weight")[0]])
    plan: Plan = {}
    for name, stored in source.stored.items():
        plan.setdefault(stored.file.name, {})[name] = by_name.get(name, tied.get(name))
    return plan


def _tensors(model: LanguageModel, pieces: Mapping[str, Piece | None], source: Source) -> Iterator[tuple[str, Tensor]]:
    """Copies of the tensors of one file. Two names of one tensor share the copy."""
    for name, tensor in source.tensors([name for name, piece in pieces.items() if piece is None]):
        yield name, tensor.clone().contiguous()
    weights = model.state_dict()
    written: dict[tuple[int, torch.dtype | None], Tensor] = {}
    for name, piece in pieces.items():
        if piece is None:
            continue
        dtype = source.stored[name].dtype
        key = (id(piece), dtype)
        if key not in written:
            written[key] = piece.take(weights[piece.ours].detach().cpu()).to(dtype, copy=True).contiguous()
        yield name, written[key]


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


def _write_index(folder: Path, plan: Plan, size: int) -> None:
    """Write the index of shards: the file of each tensor, and the bytes of all."""
    index = {
        "metadata": {"total_size": size},
        "weight_map": {name: file for file, pieces in plan.items() for name in pieces},
    }
    (folder / index_of(next(iter(plan)))).write_text(
        json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )


def card_of(source: Source, form: str, changes: Mapping[str, object] | None) -> str:
    """The original's model card with a section about the changes.

    Args:
        form: title of the format.
    """
    original = ""
    if source.card is not None:
        original = source.card.read_text(encoding="utf-8", errors="replace").rstrip() + "\n"
    if not changes:
        return original
    lines = [f"- {name}: {value}" for name, value in changes.items()]
    made = f"The weights of {source.name} were changed by ssm-length and written in the format of {form}."
    section = f"## Changes\n\n{made}\n\n" + "\n".join(lines)
    return f"{original}\n{section}\n" if original else f"{section}\n"
