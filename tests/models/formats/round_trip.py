"""Checks of all formats: equal logits after import, equal logits in the other library after export, equal bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file
from small import import_checkpoint, write_checkpoint
from torch import Tensor, nn

from ssm.models.check_layers import check_layers
from ssm.models.formats import Imported, export_checkpoint

VOCABULARY = 37
Run = Callable[[nn.Module, Tensor], Tensor]  # logits (B, T, V) of the other library's model
Load = Callable[[Path], nn.Module]
Replacements = tuple[tuple[Any, str, Any], ...]  # (module or class, name of an attribute, replacement)


def tokens() -> Tensor:
    """Random tokens (2, 23)."""
    return torch.randint(VOCABULARY, (2, 23), generator=torch.Generator().manual_seed(0))


def moved(peer: nn.Module) -> nn.Module:
    """The model with noise on every weight, so that each has an effect; tied weights stay tied."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in peer.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return peer.eval()


@contextmanager
def replaced(replacements: Replacements) -> Iterator[None]:
    """Replace functions of another library, until the end of this context."""
    with ExitStack() as patches:
        for where, name, replacement in replacements:
            patches.enter_context(patch.object(where, name, replacement))
        yield


def weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of the files in a folder."""
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix == ".safetensors":
            tensors |= load_file(file)
        elif file.suffix in (".bin", ".pth"):
            tensors |= torch.load(file, weights_only=True)
    return tensors


def assert_bitwise(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    """Equal names, dtypes and bits."""
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.dtype == right[name].dtype, name
        assert torch.equal(*(x.reshape(-1).view(torch.uint8) for x in (tensor, right[name]))), name


@torch.no_grad()
def check(
    peer: nn.Module, original: Path, load: Load, run: Run, out: Path, compare: Callable[..., None] | None = None
) -> Imported:
    """All checks in float32.

    Args:
        peer: a model of another library.
        original: the folder that it was saved to.
        compare: another check, which gets our model and a newly loaded model of the library.
    """
    before = {path.name: path.read_bytes() for path in original.iterdir()}
    imported = import_checkpoint(original)
    wanted = run(peer, tokens())
    check_layers(imported.model)
    logits = imported.model(tokens())[0]
    assert wanted.std() > 0.3
    assert logits.dtype == torch.float32
    assert (logits - wanted).abs().max() < 1e-4

    # In pieces with a state, and one token at a time.
    head, state = imported.model(tokens()[:, :9])
    rest, state = imported.model(tokens()[:, 9:22], state)
    last, _ = imported.model.step(tokens()[:, 22], state)
    assert (torch.cat([head, rest, last.unsqueeze(1)], 1) - wanted).abs().max() < 1e-4

    as_read = export_checkpoint(imported.model, imported, out / "as_read")
    assert_bitwise(weights(as_read), weights(original))
    assert (as_read / "config.json").read_bytes() == before["config.json"]
    again = load(as_read)
    if compare is not None:
        compare(imported.model, again)
    assert torch.equal(run(again, tokens()), wanted)

    by_name = write_checkpoint(imported.model, imported.format.key, out / "by_name")
    assert (run(load(by_name), tokens()) - wanted).abs().max() < 1e-4
    assert_bitwise(imported.model.state_dict(), import_checkpoint(by_name).model.state_dict())

    # A change of one of our weights changes the exported logits and our logits equally.
    imported.model.layers[1].mixer.out_proj.weight[0, 0] += 0.5
    changed = export_checkpoint(imported.model, imported, out / "changed")
    theirs = run(load(changed), tokens())
    assert (theirs - wanted).abs().max() > 1e-3
    assert (imported.model(tokens())[0] - theirs).abs().max() < 1e-4
    assert {path.name: path.read_bytes() for path in original.iterdir()} == before
    return imported


@torch.no_grad()
def check_half(original: Path, load: Load, run: Run, out: Path) -> None:
    """A bfloat16 checkpoint runs, and is exported in bfloat16, also after training in float32."""
    imported = import_checkpoint(original)
    assert next(imported.model.parameters()).dtype == torch.bfloat16
    assert imported.model(tokens())[0].isfinite().all()
    as_read = export_checkpoint(imported.model, imported, out / "half")
    assert_bitwise(weights(as_read), weights(original))
    imported.model.float()
    assert (imported.model(tokens())[0] - run(load(original).float(), tokens())).abs().max() < 1e-4
    assert_bitwise(weights(export_checkpoint(imported.model, imported, out / "trained")), weights(original))


def check_saved(peer: Any, folder: Path, load: Load, run: Run, compare: Callable[..., None] | None = None) -> Imported:
    """All checks of a model with `save_pretrained`, in float32 and then in bfloat16."""
    peer.save_pretrained(folder / "original")
    # Products with one row are rounded depending on memory alignment: use a model that was loaded, too.
    imported = check(load(folder / "original"), folder / "original", load, run, folder, compare)
    peer.bfloat16().save_pretrained(folder / "original_half")
    check_half(folder / "original_half", load, run, folder)
    return imported
