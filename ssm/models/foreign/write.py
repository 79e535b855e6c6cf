"""Export: a model of transformers that was trained here, in the files that it came in."""

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
from ssm.base.files import whole_folder
from ssm.models.foreign.load import quiet
from ssm.models.foreign.model import ForeignModel, is_a_log
from ssm.models.formats.source import CARD, CONFIG, INDEX, WEIGHTS, Source, find_source
from ssm.models.formats.write import card_of, check_apart, copy_beside, write_tensors


def export_foreign(
    model: ForeignModel, source: Source, folder: Path, changes: Mapping[str, object] | None = None
) -> Path:
    """Write a model with the names, types, files, config.json, tokenizer and card that it came with.

    What transformers did not read of the original's weights is copied.

    Args:
        model: on any device.
        source: where it came from.
        folder: a new folder, which is there whole or not at all.
        changes: what was done to the model, for a section of its card: lines of a name and a value.

    Returns:
        The folder.

    Raises:
        CheckpointError: a weight is not finite, or has another name or shape in the original.
        OutputError: the folder is there already, is that of the original, or cannot be written.
    """
    check_apart(folder, source)
    with whole_folder(folder) as temporary:
        write_weights(model, source, temporary)
        copy_beside(source, temporary, folder)
        card = card_of(source, f"transformers ({model.architecture})", changes)
        if card:
            (temporary / CARD).write_text(card, encoding="utf-8")
    return folder


def write_weights(model: ForeignModel, source: Source, folder: Path) -> None:
    """`export_foreign` of config.json and weights alone, into a folder that is there; errors of the weights alike."""
    broken = [name for name, tensor in model.state_dict().items() if not tensor.isfinite().all()]
    if broken:
        raise CheckpointError(f"{folder}: not written, weights are not finite: {', '.join(broken)}")
    by_file = defaultdict(list)
    for name, stored in source.stored.items():
        by_file[stored.file.name].append(name)
    shutil.copyfile(source.config_path, folder / CONFIG)
    if set(by_file).difference(WEIGHTS):  # also a single file, if only an index tells its name
        index = WEIGHTS[next(iter(by_file)).endswith(".bin")] + INDEX  # names, files and sizes stay what they were
        shutil.copyfile(source.folder / index, folder / index)
    with _as_it_came(model, source, folder) as tensors:
        for file, names in by_file.items():
            write_tensors(folder / file, dict(tensors(names)))
            shutil.copymode(folder / CONFIG, folder / file)  # safetensors lets nobody but the owner read


@torch.no_grad()
def round_a_logs(model: ForeignModel, source: Source) -> bool:
    """Round A_log of every layer that has one to the type that the source has it in, as `write_weights` would.

    Returns:
        False: the source may call one otherwise, so that its type is known only when it is written.
    """
    for layer in model.spec.decays:
        types = {stored.dtype for name, stored in source.stored.items() if is_a_log(name, layer)}
        if len(types) != 1:
            return False
        parameter = model.a_log(layer)
        parameter.copy_(parameter.to(types.pop() or parameter.dtype))
    return True


def check_unchanged(model: ForeignModel, source: Source, folder: Path) -> None:
    """Whether a model that was only read is written back bit for bit.

    Args:
        folder: for files that are deleted again, as large as the model in float32.

    Raises:
        CheckpointError: it is not, or its weights have other names than they came with.
    """
    with _as_it_came(model, source, folder) as tensors:
        originals = source.tensors(source.stored)
        changed = [
            name for name, original in originals for _, tensor in tensors([name]) if not _same_bits(original, tensor)
        ]
    if changed:
        raise CheckpointError(f"{source.name}: transformers does not write back what it read: {', '.join(changed)}")


@contextmanager
def _as_it_came(model: ForeignModel, source: Source, folder: Path) -> Iterator[Any]:
    """A function from names of the source to tensors of these names, with the model's weights in the source's types.

    transformers knows the names that it gave other ones when it read them; `save_pretrained` undoes that.
    """
    import transformers

    inner: Any = model.inner
    with tempfile.TemporaryDirectory(dir=folder, prefix=".", suffix=".tmp") as scratch:
        try:
            with quiet(transformers):
                inner.save_pretrained(scratch)
        except Exception as error:  # anything, from code that is not ours
            raise CheckpointError(f"{source.name}: transformers cannot write it ({first_line(error)})") from error
        written = find_source(scratch)
        names = _names(model, source, written)

        def tensors(wanted: list[str]) -> Iterator[tuple[str, Tensor]]:
            for name in wanted:
                place, of = names[name]
                ((_, tensor),) = of.tensors([place])
                yield name, tensor.to(source.stored[name].dtype or tensor.dtype, copy=True)

        yield tensors


def _names(model: ForeignModel, source: Source, written: Source) -> dict[str, tuple[str, Source]]:
    """By name in the source, the name of its tensor and where that is."""
    strange = [name for name in written.stored if name not in source.stored]
    if strange:
        raise CheckpointError(
            f"{source.name}: its weights cannot be written back: to {model.architecture} they are called otherwise, "
            f"{', '.join(strange)}"
        )
    found = {}
    for name in source.stored:
        alias = next((other for other in model.tied_to(name) if other in written.stored), name)
        place = (name, written) if name in written.stored else (alias, written if alias != name else source)
        shapes = place[1].stored[place[0]].shape, source.stored[name].shape
        if shapes[0] != shapes[1]:
            raise CheckpointError(f"{source.name}: {name} is {shapes[1]}, and {shapes[0]} to {model.architecture}")
        found[name] = place
    return found


def _same_bits(one: Tensor, other: Tensor) -> bool:
    same = one.shape == other.shape and one.dtype == other.dtype
    return same and torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
