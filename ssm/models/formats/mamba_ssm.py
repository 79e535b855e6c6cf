"""mamba_ssm's Mamba and Mamba-2: the checkpoints state-spaces/mamba-* and state-spaces/mamba2-*, hybrids too."""

from __future__ import annotations

import math
from typing import Any

from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import as_limit, ffn_of
from ssm.specs.ffn.gated_mlp import GatedMlp
from ssm.specs.mixers.attention import AttentionMixer
from ssm.specs.mixers.mamba1 import Mamba1Mixer
from ssm.specs.mixers.mamba2 import Mamba2Mixer
from ssm.specs.model import ModelSpec

# What its layers take by default, and what ours have no other of.
LAYERS: dict[str, dict[str, Any]] = {
    "Mamba1": {"d_state": 16, "d_conv": 4, "expand": 2, "dt_rank": "auto"},
    "Mamba2": {"d_state": 128, "d_conv": 4, "expand": 2, "headdim": 64, "ngroups": 1, "dt_limit": (0.0, math.inf)},
}
LAYERS_FIXED: dict[str, dict[str, Any]] = {
    "Mamba1": {"bias": False, "conv_bias": True},
    "Mamba2": {
        "bias": False, "conv_bias": True, "rmsnorm": True, "norm_before_gate": False, "D_has_hdim": False,
        "d_ssm": None,
    },
}  # fmt: skip


ATTENTION: dict[str, Any] = {
    "num_heads_kv": None, "head_dim": None, "mlp_dim": 0, "qkv_proj_bias": True, "out_proj_bias": True,
    "softmax_scale": None, "causal": False, "d_conv": 0, "rotary_emb_dim": 0, "rotary_emb_base": 10_000.0,
    "rotary_emb_interleaved": False,
}  # fmt: skip
ATTENTION_FIXED = {"causal": True, "mlp_dim": 0, "softmax_scale": None, "rotary_emb_interleaved": False}
HIDDEN_MULTIPLE = 128  # of what its MLP rounds d_intermediate up to

# Why no Mamba-3 is read.
MAMBA3 = (
    "its files do not say which function makes A, softplus (fla, and mamba_ssm until June 2026) or 1 + x and "
    "1 / (1 - x) (mamba_ssm since), so that the same weights are two models"
)


def _fields(config: Config) -> tuple[Fields, int]:
    given = dict(config["ssm_cfg"] or {})
    layer = given.pop("layer", "Mamba1")
    if layer == "Mamba3":
        raise ValueError(f"Mamba-3 is not read: {MAMBA3}")
    if layer not in LAYERS:
        raise ValueError(f"ssm_cfg.layer is {layer!r}; known are {' and '.join(LAYERS)}")
    for key, value in LAYERS_FIXED[layer].items():
        if given.get(key, value) != value:
            raise ValueError(f"ssm_cfg.{key} is {given[key]!r}; known is {value!r} alone")
    options = LAYERS[layer] | given
    mixer = {"d_state": options["d_state"], "d_conv": options["d_conv"], "expand": options["expand"]}
    if layer == "Mamba1":
        rank = options["dt_rank"]
        mixer |= {"kind": "mamba1", "dt_rank": math.ceil(config["d_model"] / 16) if rank == "auto" else rank}
    else:
        mixer |= {"kind": "mamba2", "head_dim": options["headdim"], "n_groups": options["ngroups"]}
        mixer |= {"dt_limit": as_limit(options["dt_limit"])}
    fields = {
        "d_model": config["d_model"],
        "n_layers": config["n_layer"],
        "mixer": mixer,
        "mixer_at": dict.fromkeys(config["attn_layer_idx"] or (), _attention(config)),
        "ffn": _ffn(config["d_intermediate"]),
        "norm": "rms" if config["rms_norm"] else "layer",
        "tie_embeddings": config["tie_embeddings"],
        "vocab_multiple": config["pad_vocab_size_multiple"],
    }
    return fields, config["vocab_size"]


def _attention(config: Config) -> Fields | None:
    """The mixer of the layers in attn_layer_idx; None: there are none."""
    if not config["attn_layer_idx"]:
        return None
    options = ATTENTION | (config["attn_cfg"] or {})
    for key, value in ATTENTION_FIXED.items():
        if options[key] != value:
            raise ValueError(f"attn_cfg.{key} is {options[key]!r}; known is {value!r} alone")
    unknown = sorted(set(options) - set(ATTENTION) - {"num_heads"})
    if unknown:
        raise ValueError(f"attn_cfg has {', '.join(unknown)}, which ssm does not know")
    head = options["head_dim"] or config["d_model"] // options["num_heads"]
    share = options["rotary_emb_dim"] / head
    return {
        "kind": "attention",
        "n_heads": options["num_heads"],
        "n_kv_heads": options["num_heads_kv"],
        "head_dim": options["head_dim"],
        "rotary_pct": share if int(head * share) == options["rotary_emb_dim"] else math.nextafter(share, 1),
        "rotary_base": float(options["rotary_emb_base"]),
        "bias": options["qkv_proj_bias"],
        "out_bias": options["out_proj_bias"],
        "d_conv": options["d_conv"] or None,
    }


def _ffn(width: int) -> Fields | None:
    """A gated MLP of at least this width in every layer; 0: none."""
    hidden = -(-width // HIDDEN_MULTIPLE) * HIDDEN_MULTIPLE
    return {"kind": "gated_mlp", "d_hidden": hidden} if hidden else None


def _attention_config(spec: ModelSpec) -> dict[str, Any]:
    """What `_attention` reads."""
    layers = [i for i, mixer in enumerate(spec.mixers()) if isinstance(mixer, AttentionMixer)]
    if not layers:
        return {"attn_layer_idx": [], "attn_cfg": {}}
    mixer = spec.mixers()[layers[0]]
    assert isinstance(mixer, AttentionMixer)
    attention = {
        "causal": True,
        "num_heads": mixer.n_heads,
        "num_heads_kv": mixer.heads(spec.d_model),
        "head_dim": mixer.state_shape(spec.d_model)[-1],
        "qkv_proj_bias": mixer.bias,
        "out_proj_bias": mixer.output_bias,
        "d_conv": mixer.d_conv or 0,
        "rotary_emb_dim": mixer.rotary_dim(spec.d_model),
        "rotary_emb_base": mixer.rotary_base,
    }
    return {"attn_layer_idx": layers, "attn_cfg": attention}


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    mixer = next((mixer for mixer in spec.mixers() if not isinstance(mixer, AttentionMixer)), spec.mixer)
    layer: dict[str, Any] = {}
    if isinstance(mixer, Mamba2Mixer):
        layer = {"layer": "Mamba2", "headdim": mixer.head_dim, "ngroups": mixer.n_groups}
        if mixer.dt_limit != (0.0, None):
            layer["dt_limit"] = [mixer.dt_limit[0], math.inf if mixer.dt_limit[1] is None else mixer.dt_limit[1]]
    elif isinstance(mixer, Mamba1Mixer):
        layer = {"layer": "Mamba1", "dt_rank": mixer.rank(spec.d_model)}
    else:
        raise ValueError(f"it has no {mixer.kind}")
    return {
        "d_model": spec.d_model,
        "d_intermediate": 0 if spec.ffn is None else ffn_of(spec, GatedMlp).d_hidden,
        "n_layer": spec.n_layers,
        "vocab_size": vocab_size,
        "ssm_cfg": layer | {"d_state": mixer.d_state, "d_conv": mixer.d_conv, "expand": mixer.expand},
        **_attention_config(spec),
        "rms_norm": spec.norm == "rms",
        "residual_in_fp32": True,
        "fused_add_norm": True,
        "pad_vocab_size_multiple": spec.vocab_multiple,
        "tie_embeddings": spec.tie_embeddings,
    }


MAMBA_SSM = Format(
    key="mamba_ssm",
    title="mamba_ssm's models",
    model_type=None,
    architecture="MambaLMHeadModel",
    rows=(
        Row("embedding.weight", "backbone.embedding.weight"),
        Row("layers.{i}.norm.weight", "backbone.layers.{i}.norm.weight"),
        Row("layers.{i}.norm.bias", "backbone.layers.{i}.norm.bias"),
        Row("layers.{i}.mixer.in_proj.weight", "backbone.layers.{i}.mixer.in_proj.weight"),
        Row("layers.{i}.mixer.conv_weight", "backbone.layers.{i}.mixer.conv1d.weight", "c 1 k -> c k"),
        Row("layers.{i}.mixer.conv_bias", "backbone.layers.{i}.mixer.conv1d.bias"),
        Row("layers.{i}.mixer.x_proj.weight", "backbone.layers.{i}.mixer.x_proj.weight"),
        Row("layers.{i}.mixer.dt_proj.weight", "backbone.layers.{i}.mixer.dt_proj.weight"),
        Row("layers.{i}.mixer.dt_proj.bias", "backbone.layers.{i}.mixer.dt_proj.bias"),
        Row("layers.{i}.mixer.dt_bias", "backbone.layers.{i}.mixer.dt_bias"),
        Row("layers.{i}.mixer.A_log", "backbone.layers.{i}.mixer.A_log"),
        Row("layers.{i}.mixer.D", "backbone.layers.{i}.mixer.D"),
        Row("layers.{i}.mixer.norm_weight", "backbone.layers.{i}.mixer.norm.weight"),
        Row("layers.{i}.mixer.out_proj.weight", "backbone.layers.{i}.mixer.out_proj.weight"),
        Row("layers.{i}.mixer.in_proj.bias", "backbone.layers.{i}.mixer.in_proj.bias"),
        Row("layers.{i}.mixer.out_proj.bias", "backbone.layers.{i}.mixer.out_proj.bias"),
        Row("layers.{i}.ffn_norm.weight", "backbone.layers.{i}.norm2.weight"),
        Row("layers.{i}.ffn_norm.bias", "backbone.layers.{i}.norm2.bias"),
        Row("layers.{i}.ffn.up_proj.weight", "backbone.layers.{i}.mlp.fc1.weight", "(half h) d -> (half h) d"),
        Row("layers.{i}.ffn.down_proj.weight", "backbone.layers.{i}.mlp.fc2.weight"),
        Row("norm.weight", "backbone.norm_f.weight"),
        Row("norm.bias", "backbone.norm_f.bias"),
        Row("head.weight", "lm_head.weight"),
    ),
    defaults={
        "ssm_cfg": {}, "attn_layer_idx": [], "attn_cfg": {}, "d_intermediate": 0, "rms_norm": True,
        "tie_embeddings": True, "pad_vocab_size_multiple": 8,
    },
    fixed={},
    fields=_fields,
    config=_config,
    tied=("backbone.embedding.weight", "lm_head.weight"),
    sizes=lambda spec: {"half": 2},
    picks={"half": (1, 0)},  # of its MLP the gate comes second, of ours first
    keys=("d_model", "n_layer", "vocab_size"),
    writes_tied=True,
    container="bin",
    dt_limit=("ssm_cfg", "dt_limit"),
)  # fmt: skip
