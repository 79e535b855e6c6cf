"""Round trips of mamba_ssm's Mamba, Mamba-2 and hybrids with attention.

mamba_ssm needs a GPU. The tests write its files by hand, in the published layout: config.json with d_model, n_layer and
ssm_cfg, and pytorch_model.bin with the head and the embedding that it is tied to. Their reference is transformers'
computation with the same weights. Attention and the gated MLP follow mamba_ssm/modules/mha.py and mlp.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from models.formats import hf, round_trip
from safetensors.torch import save_file
from small import import_checkpoint
from torch import Tensor, nn

from ssm.base.errors import CheckpointError

D, L, V = 32, 3, round_trip.VOCABULARY
ROWS = 40  # the vocabulary, rounded up to a multiple of 8
Peer = Callable[..., nn.Module]


def config(ssm_cfg: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "d_model": D, "n_layer": L, "vocab_size": V, "ssm_cfg": ssm_cfg, "rms_norm": True, "residual_in_fp32": True,
        "fused_add_norm": True, "pad_vocab_size_multiple": 8,
    } | changes  # fmt: skip


def peer_of(theirs: dict[str, Any]) -> nn.Module:
    """transformers' model of a mamba_ssm config."""
    tied = theirs.get("tie_embeddings", True)
    around = {"hidden_size": theirs["d_model"], "num_hidden_layers": theirs["n_layer"], "tie_word_embeddings": tied}
    multiple = theirs["pad_vocab_size_multiple"]
    rows = -(-theirs["vocab_size"] // multiple) * multiple
    options = theirs["ssm_cfg"]
    if options.get("layer") == "Mamba2":
        shape = {"num_heads": 2 * D // 16, "head_dim": 16, "state_size": 8, "n_groups": options["ngroups"]}
        cls, made = "Mamba2", shape | {"chunk_size": 8, "time_step_limit": options.get("dt_limit", (0.0, float("inf")))}
    else:
        cls, made = "Mamba", {"state_size": options.get("d_state", 16), "time_step_rank": options.get("dt_rank", 2)}
    import transformers

    torch.manual_seed(0)
    built = getattr(transformers, f"{cls}Config")(vocab_size=rows, **around, **made)
    peer = getattr(transformers, f"{cls}ForCausalLM")(built)
    for i, block in enumerate(peer.backbone.layers):
        if i in (theirs.get("attn_layer_idx") or []):
            block.mixer = Attention(**theirs["attn_cfg"])
        if theirs.get("d_intermediate"):
            peer.backbone.layers[i] = TwoHalves(block)
    return round_trip.moved(peer)


class Attention(nn.Module):
    """mamba_ssm's MHA, one query at a time. Rotary positions are products of complex numbers."""

    def __init__(
        self, *, num_heads: int, causal: bool, num_heads_kv: int | None = None, head_dim: int | None = None,
        d_conv: int = 0, qkv_proj_bias: bool = True, out_proj_bias: bool = True, rotary_emb_dim: int = 0,
        rotary_emb_base: float = 10_000.0,
    ):  # fmt: skip
        super().__init__()
        assert causal
        self.heads, self.groups, self.size = num_heads, num_heads_kv or num_heads, head_dim or D // num_heads
        self.rotated, self.base = rotary_emb_dim, rotary_emb_base
        channels = self.size * (self.heads + 2 * self.groups)
        self.in_proj = nn.Linear(D, channels, bias=qkv_proj_bias)
        if d_conv:
            self.conv1d = nn.Conv1d(channels, channels, d_conv, padding=d_conv - 1, groups=channels)
        self.out_proj = nn.Linear(self.heads * self.size, D, bias=out_proj_bias)

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        qkv = self.in_proj(x)
        if hasattr(self, "conv1d"):
            qkv = self.conv1d(qkv.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        heads = qkv.unflatten(-1, (-1, self.size))  # (B, T, H + 2 G, K)
        q, k, v = heads.split([self.heads, self.groups, self.groups], 2)
        q, k = self.turned(q), self.turned(k)
        outputs = []
        for t in range(x.shape[1]):
            for h in range(self.heads):
                g = h * self.groups // self.heads
                scores = (k[:, : t + 1, g] * q[:, t, h, None]).sum(-1) / self.size**0.5  # (B, t + 1)
                outputs.append((scores.softmax(-1)[..., None] * v[:, : t + 1, g]).sum(1))  # (B, K)
        return self.out_proj(torch.stack(outputs, 1).reshape(*x.shape[:2], -1))

    def turned(self, x: Tensor) -> Tensor:
        half = self.rotated // 2
        pairs = torch.complex(x[..., :half].float(), x[..., half : self.rotated].float())
        angles = torch.arange(x.shape[1])[:, None] * self.base ** -(torch.arange(half) / max(half, 1))  # (T, half)
        pairs = pairs * torch.polar(torch.ones_like(angles), angles)[:, None]
        return torch.cat([pairs.real.to(x), pairs.imag.to(x), x[..., self.rotated :]], -1)


class Mlp(nn.Module):
    """mamba_ssm's GatedMLP with its smallest width."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(D, 2 * 128, bias=False), nn.Linear(128, D, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y, gate = self.fc1(x).split(128, -1)
        return self.fc2(y * gate * gate.sigmoid())


class TwoHalves(nn.Module):
    """A block with a mixer and an MLP."""

    def __init__(self, block: Any):
        super().__init__()
        self.norm, self.mixer, self.norm2, self.mlp = block.norm, block.mixer, nn.RMSNorm(D, eps=1e-5), Mlp()

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        x = x + self.mixer(self.norm(x), **kwargs)
        return x + self.mlp(self.norm2(x))


def state_dict(peer: nn.Module) -> dict[str, Tensor]:
    """The weights of a model under mamba_ssm's names."""
    return {name.replace("backbone.embeddings", "backbone.embedding"): w for name, w in peer.state_dict().items()}


def save(theirs: dict[str, Any], tensors: dict[str, Tensor], folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(theirs))
    torch.save(tensors, folder / "pytorch_model.bin")


def load(folder: Path) -> nn.Module:
    """A model with the weights of a folder, which must have mamba_ssm's names."""
    theirs = json.loads((folder / "config.json").read_text())
    peer = peer_of(theirs)
    tensors = torch.load(folder / "pytorch_model.bin", weights_only=True)
    if theirs.get("tie_embeddings", True):  # one tensor under two names
        assert tensors["lm_head.weight"].data_ptr() == tensors["backbone.embedding.weight"].data_ptr()
    peer.load_state_dict({n.replace("backbone.embedding.", "backbone.embeddings."): w for n, w in tensors.items()})
    return peer


def run(peer: nn.Module, tokens: Tensor) -> Tensor:
    return hf.run(peer, tokens)[..., :V]


MAMBA2 = {"layer": "Mamba2", "d_state": 8, "headdim": 16, "ngroups": 1}
VARIANTS: dict[str, dict[str, Any]] = {
    "mamba": config({}),
    "mamba, options": config({"layer": "Mamba1", "d_state": 5, "dt_rank": 3}),
    "mamba2": config(MAMBA2, d_intermediate=0, attn_layer_idx=[], attn_cfg={}, tie_embeddings=True),
    "mamba2, groups, limits": config(MAMBA2 | {"ngroups": 2, "dt_limit": [0.05, 0.5]}),
    "mamba2, untied": config(MAMBA2, tie_embeddings=False),
    "state-spaces/mamba2attn-2.7b": config(
        MAMBA2,
        attn_layer_idx=[1],
        attn_cfg={"causal": True, "d_conv": 4, "head_dim": 8, "num_heads": 3, "out_proj_bias": False,
                  "qkv_proj_bias": False, "rotary_emb_dim": 4},
    ),
    "mamba, groups, biases, an MLP": config(
        {},
        attn_layer_idx=[2],
        attn_cfg={"causal": True, "num_heads": 4, "num_heads_kv": 2, "rotary_emb_dim": 8, "rotary_emb_base": 100.0},
        d_intermediate=99,
    ),
}  # fmt: skip


@pytest.mark.parametrize("theirs", VARIANTS.values(), ids=VARIANTS)
def test_round_trip(theirs: dict[str, Any], tmp_path: Path) -> None:
    peer = peer_of(theirs)
    save(theirs, state_dict(peer), tmp_path / "original")
    imported = round_trip.check(peer, tmp_path / "original", load, run, tmp_path)
    assert imported.format.key == "mamba_ssm"
    assert (imported.model.vocab_size, imported.model.embedding.num_embeddings) == (V, ROWS)
    save(theirs, state_dict(peer.bfloat16()), tmp_path / "original_half")
    round_trip.check_half(tmp_path / "original_half", load, run, tmp_path)


def test_safetensors_with_a_copy_of_the_head(tmp_path: Path) -> None:
    peer = peer_of(config({}))
    save(config({}), {}, tmp_path / "original")
    (tmp_path / "original" / "pytorch_model.bin").unlink()
    tensors = {name: tensor.clone() for name, tensor in state_dict(peer).items()}
    save_file(tensors, tmp_path / "original" / "model.safetensors")
    imported = import_checkpoint(tmp_path / "original")
    with torch.no_grad():
        assert (imported.model(round_trip.tokens())[0] - run(peer, round_trip.tokens())).abs().max() < 1e-4


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    tensors = state_dict(peer_of(config({})))
    save(config({}), tensors | {"lm_head.weight": tensors["lm_head.weight"] + 1}, tmp_path / "original")
    with pytest.raises(
        CheckpointError, match=r"lm_head\.weight differs from the embedding, but config\.json ties them"
    ):
        import_checkpoint(tmp_path / "original")
