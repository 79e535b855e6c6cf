"""What is to hold for every format: in, the same logits; out, the same logits in the library it came from; bitwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ssm.models.formats import Imported, export_checkpoint, import_checkpoint

VOCABULARY = 37
Run = Callable[[nn.Module, Tensor], Tensor]  # a peer's logits (B, T, V)
Load = Callable[[Path], nn.Module]


def tokens(seed: int = 0, batch: int = 2, length: int = 23) -> Tensor:
    """Random tokens (B, T)."""
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def moved(peer: nn.Module, spread: float = 0.2) -> nn.Module:
    """The peer with noise on every weight, so that none is without effect; tied weights stay tied."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in peer.parameters():
            parameter += spread * torch.randn(parameter.shape, generator=generator)
    return peer.eval()


def weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's files."""
    found: dict[str, Tensor] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix == ".safetensors":
            found |= load_file(file)
        elif file.suffix == ".bin":
            found |= torch.load(file, weights_only=True)
    return found


def bits(tensor: Tensor) -> Tensor:
    """The bits of every number."""
    return tensor.reshape(-1).view(torch.uint8)


def assert_bitwise(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype, name
        assert torch.equal(bits(tensor), bits(other[name])), name


@torch.no_grad()
def check(peer: nn.Module, original: Path, load: Load, run: Run, out: Path) -> Imported:
    """All of it, for a model of another library and the folder that it was saved to."""
    before = {path.name: path.read_bytes() for path in original.iterdir()}
    imported = import_checkpoint(original)
    wanted = run(peer, tokens())
    got = imported.model(tokens())[0]
    assert wanted.std() > 0.3
    assert got.dtype == torch.float32
    assert (got - wanted).abs().max() < 1e-4

    # In pieces with a carried state, and a token at a time.
    head, state = imported.model(tokens()[:, :9])
    rest, state = imported.model(tokens()[:, 9:22], state)
    last, _ = imported.model.step(tokens()[:, 22], state)
    assert (torch.cat([head, rest, last.unsqueeze(1)], 1) - wanted).abs().max() < 1e-4

    as_read = export_checkpoint(imported.model, imported, out / "as_read")
    assert_bitwise(weights(as_read), weights(original))
    assert (as_read / "config.json").read_bytes() == before["config.json"]
    assert torch.equal(run(load(as_read), tokens()), wanted)

    by_name = export_checkpoint(imported.model, imported.format.key, out / "by_name")
    assert (run(load(by_name), tokens()) - wanted).abs().max() < 1e-4
    again = import_checkpoint(by_name)
    for (name, ours), theirs in zip(
        imported.model.state_dict().items(), again.model.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs), name

    # A weight that moves, moves the exported logits as it moves ours.
    imported.model.layers[1].mixer.out_proj.weight[0, 0] += 0.5
    changed = export_checkpoint(imported.model, imported, out / "changed")
    theirs = run(load(changed), tokens())
    assert (theirs - wanted).abs().max() > 1e-3
    assert (imported.model(tokens())[0] - theirs).abs().max() < 1e-4
    assert {path.name: path.read_bytes() for path in original.iterdir()} == before
    return imported


@torch.no_grad()
def check_half(original: Path, load: Load, run: Run, out: Path) -> Imported:
    """A bfloat16 checkpoint stays one, also where the model was trained in float32; and it runs as it lies."""
    imported = import_checkpoint(original)
    assert imported.dtype == torch.bfloat16
    as_read = export_checkpoint(imported.model, imported, out / "half")
    assert_bitwise(weights(as_read), weights(original))
    assert imported.model(tokens())[0].isfinite().all()
    imported.model.float()
    assert (imported.model(tokens())[0] - run(load(original).float(), tokens())).abs().max() < 1e-4
    assert_bitwise(weights(export_checkpoint(imported.model, imported, out / "trained")), weights(original))
    return imported


def check_saved(peer: Any, folder: Path, load: Load, run: Run) -> Imported:
    """A model that saves itself, in float32 and then in bfloat16."""
    peer.save_pretrained(folder / "original")
    imported = check(peer, folder / "original", load, run, folder)
    peer.bfloat16().save_pretrained(folder / "original_half")
    check_half(folder / "original_half", load, run, folder)
    return imported
