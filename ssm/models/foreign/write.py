"""Export a model of transformers that was trained here, with the files and names of the original."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ssm.base.errors import CheckpointError, first_line
from ssm.base.files import atomic_folder
from ssm.models.foreign.load import quiet
from ssm.models.foreign.model import ForeignModel, is_a_log
from ssm.models.formats.source import CARD, CONFIG, WEIGHTS, Source, find_source, index_of
from ssm.models.formats.write import card_of, check_apart, check_finite, copy_companions, write_tensors


def export_foreign(
    model: ForeignModel, source: Source, folder: Path, changes: Mapping[str, object] | None = None
) -> Path:
    """Write a model with the names, dtypes, files, config.json, tokenizer and model card of the original.

    Tensors of the original that transformers does not read are copied.

    Args:
        model: on any device.
        source: the original.
        folder: a new folder. It is complete, or does not exist.
        changes: what was done to the model: names and values for a section of the model card.

    Returns:
        The folder.

    Raises:
        CheckpointError: a weight is not finite, or has another name or shape in the original.
        OutputError: the folder exists, is the original's folder, or cannot be written.
    """
    check_apart(folder, source.folder)
    with atomic_folder(folder) as temporary:
        write_weights(model, source, temporary)
        copy_companions(source, temporary, folder)
        card = card_of(source, f"transformers ({model.architecture})", changes)
        if card:
            (temporary / CARD).write_text(card, encoding="utf-8")
    return folder


def write_weights(model: ForeignModel, source: Source, folder: Path) -> None:
    """Write only config.json and the weights, into an existing folder. Raises CheckpointError as `export_foreign`."""
    check_finite(model, folder)
    by_file = defaultdict(list)
    for name, stored in source.stored.items():
        by_file[stored.file.name].append(name)
    shutil.copyfile(source.config_path, folder / CONFIG)
    if set(by_file).difference(WEIGHTS):  # a single file with an unusual name needs an index too
        index = index_of(next(iter(by_file)))  # names, files and sizes do not change
        shutil.copyfile(source.folder / index, folder / index)
    with _in_original_form(model, source, folder) as tensors:
        for file, names in by_file.items():
            write_tensors(folder / file, dict(tensors(names)))
            shutil.copymode(folder / CONFIG, folder / file)  # safetensors writes files that only their owner can read


@torch.no_grad()
def round_a_logs(model: ForeignModel, source: Source) -> bool:
    """Round every A_log to its dtype in the source, as `write_weights` does.

    Returns:
        False: the source has another name for an A_log. Its dtype is then known only after writing.
    """
    for layer in model.spec.decays:
        types = {stored.dtype for name, stored in source.stored.items() if is_a_log(name, layer)}
        if len(types) != 1:
            return False
        parameter = model.a_log(layer)
        parameter.copy_(parameter.to(types.pop() or parameter.dtype))
    return True


def check_unchanged(model: ForeignModel, source: Source, folder: Path) -> None:
    """Check that writing a model that was only read gives the same bits.

    Args:
        folder: for temporary files as large as the model in float32.

    Raises:
        CheckpointError: bits or names differ.
    """
    with _in_original_form(model, source, folder) as tensors:
        originals = source.tensors(source.stored)
        changed = [
            name for name, original in originals for _, tensor in tensors([name]) if not _same_bits(original, tensor)
        ]
    if changed:
        raise CheckpointError(f"{source.name}: transformers writes other weights than it read: {', '.join(changed)}")


@contextmanager
def _in_original_form(model: ForeignModel, source: Source, folder: Path) -> Iterator[Any]:
    """A function from tensor names of the source to the model's weights, in the source's dtypes.

    transformers renames some weights when it reads them. `save_pretrained` restores the original names.
    """
    import transformers

    inner: Any = model.inner
    with tempfile.TemporaryDirectory(dir=folder, prefix=".", suffix=".tmp") as scratch:
        try:
            with quiet(transformers):
                inner.save_pretrained(scratch)
        except Exception as error:  # other people's code can raise anything
            raise CheckpointError(f"{source.name}: transformers cannot write it ({first_line(error)})") from error
        written = find_source(scratch)
        names = _names(model, source, written)

        def tensors(wanted: list[str]) -> Iterator[tuple[str, Tensor]]:
            for name in wanted:
                stored_name, checkpoint = names[name]
                ((_, tensor),) = checkpoint.tensors([stored_name])
                yield name, tensor.to(source.stored[name].dtype or tensor.dtype, copy=True)

        yield tensors


def _names(model: ForeignModel, source: Source, written: Source) -> dict[str, tuple[str, Source]]:
    """Name in the source -> the checkpoint that has the tensor (`source` or `written`), and its name there."""
    strange = [name for name in written.stored if name not in source.stored]
    if strange:
        raise CheckpointError(
            f"{source.name}: its weights cannot be written back, because {model.architecture} has other names: "
            f"{', '.join(strange)}"
        )
    places = {}
    for name in source.stored:
        alias = next((other for other in model.tied_to(name) if other in written.stored), name)
        place = (name, written) if name in written.stored else (alias, written if alias != name else source)
        old, new = source.stored[name].shape, place[1].stored[place[0]].shape
        if new != old:
            raise CheckpointError(f"{source.name}: {name} has shape {old}, but {new} in {model.architecture}")
        places[name] = place
    return places


def _same_bits(first: Tensor, second: Tensor) -> bool:
    same = first.shape == second.shape and first.dtype == second.dtype
    return same and torch.equal(first.reshape(-1).view(torch.uint8), second.reshape(-1).view(torch.uint8))
