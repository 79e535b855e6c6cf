"""mamba_ssm's Mamba, Mamba-2 and hybrids: the checkpoints state-spaces/mamba-* and state-spaces/mamba2-*."""

from __future__ import annotations

import math
from typing import Any

from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Config, Fields, Key, complete, read_keys, refused, write_keys
from ssm.models.formats.parts import affine, dt_limit, dt_rank
from ssm.specs.ffn.gated_mlp import GatedMlp
from ssm.specs.mixers.attention import AttentionMixer
from ssm.specs.model import ModelSpec


def _rotated(dims: int, config: Config) -> float:
    """The rotated share of a head."""
    head = config["head_dim"] or config["d_model"] // config["num_heads"]
    share = dims / head
    return share if int(head * share) == dims else math.nextafter(share, 1)


SHARED = (
    Key("d_conv", "d_conv", 4),
    Key("expand", "expand", 2),
    Key("bias", only=(False,)),
    Key("conv_bias", only=(True,)),
)
KINDS = {"Mamba1": "mamba1", "Mamba2": "mamba2"}
LAYERS: dict[str, tuple[Key, ...]] = {  # ssm_cfg
    "Mamba1": (*SHARED, Key("d_state", "d_state", 16), dt_rank("dt_rank", "dt_rank", "d_model")),
    "Mamba2": (
        *SHARED,
        Key("d_state", "d_state", 128),
        Key("headdim", "head_dim", 64),
        Key("ngroups", "n_groups", 1),
        dt_limit("dt_limit", "dt_limit"),
        Key("rmsnorm", only=(True,)),
        Key("norm_before_gate", only=(False,)),
        Key("D_has_hdim", only=(False,)),
        Key("d_ssm", only=(None,)),
    ),
}
ATTENTION = (  # attn_cfg
    Key("causal", default=False, only=(True,)),
    Key("num_heads", "n_heads"),
    Key("num_heads_kv", "n_kv_heads", None),
    Key("head_dim", "head_dim", None),
    Key("rotary_emb_dim", "rotary_pct", 0, read=_rotated, write=lambda mixer, D: mixer.rotary_dim(D)),
    Key("rotary_emb_base", "rotary_base", 10_000.0, read=lambda base, config: float(base)),
    Key("rotary_emb_interleaved", only=(False,)),
    Key("qkv_proj_bias", "bias", True),
    Key("out_proj_bias", "out_bias", True),
    Key("d_conv", "d_conv", 0, read=lambda width, config: width or None, write=lambda mixer, D: mixer.d_conv or 0),
    Key("mlp_dim", only=(0,)),
    Key("softmax_scale", only=(None,)),
)
HIDDEN_MULTIPLE = 128  # its MLP rounds d_intermediate up to a multiple of this

# Why ssm does not read Mamba-3.
MAMBA3 = (
    "its files do not say which function computes A: softplus (fla, and mamba_ssm until June 2026), or 1 + x and "
    "1 / (1 - x) (mamba_ssm since then)"
)


def _read(within: str, keys: tuple[Key, ...], given: Config, config: Config, kind: str) -> Fields:
    """The fields of a mixer, which config.json has under the key `within`."""
    known = complete(keys, given)
    problem = refused(keys, known)
    if problem is not None:
        raise ValueError(f"{within}.{problem}")
    ours: Fields = {"kind": kind}
    read_keys(keys, known | {"d_model": config["d_model"]}, ours)
    return ours


def _layer(given: Config | None, config: Config) -> Fields:
    layer = (given or {}).get("layer", "Mamba1")
    if layer == "Mamba3":
        raise ValueError(f"ssm cannot read Mamba-3: {MAMBA3}")
    if layer not in LAYERS:
        raise ValueError(f"ssm_cfg.layer is {layer!r}; ssm supports only {' and '.join(LAYERS)}")
    return _read("ssm_cfg", LAYERS[layer], given or {}, config, KINDS[layer])


def _ssm_cfg(spec: ModelSpec, D: int) -> dict[str, Any]:
    mixer = next((mixer for mixer in spec.mixers() if not isinstance(mixer, AttentionMixer)), spec.mixer)
    for layer, kind in KINDS.items():
        if mixer.kind == kind:
            return {"layer": layer, **write_keys(LAYERS[layer], lambda field: mixer, D)}
    raise ValueError(f"its mixer is {mixer.kind}")


def _attention(given: Config | None, config: Config) -> Fields:
    """The mixer of the layers in attn_layer_idx."""
    if not config["attn_layer_idx"]:
        return {}
    unknown = sorted(set(given or {}) - {key.theirs for key in ATTENTION})
    if unknown:
        raise ValueError(f"attn_cfg has unknown keys: {', '.join(unknown)}")
    return _read("attn_cfg", ATTENTION, given or {}, config, "attention")


def _attn_cfg(mixer: AttentionMixer, D: int) -> dict[str, Any]:
    return write_keys(ATTENTION, lambda field: mixer, D)


def _attn_layer_idx(spec: ModelSpec, D: int) -> list[int]:
    return [i for i, mixer in enumerate(spec.mixers()) if isinstance(mixer, AttentionMixer)]


def _ffn(width: int, config: Config) -> Fields | None:
    """The gated MLP of every layer, with at least this width; 0: no MLP."""
    hidden = -(-width // HIDDEN_MULTIPLE) * HIDDEN_MULTIPLE
    return {"kind": "gated_mlp", "d_hidden": hidden} if hidden else None


def _d_intermediate(spec: ModelSpec, D: int) -> int:
    if spec.ffn is not None and not isinstance(spec.ffn, GatedMlp):
        raise ValueError(f"its ffn is {spec.ffn.kind}")
    return 0 if spec.ffn is None else spec.ffn.d_hidden


MAMBA_SSM = Format(
    key="mamba_ssm",
    title="mamba_ssm's models",
    model_type=None,
    architecture="MambaLMHeadModel",
    ours={"attention": {"kind": "attention"}},
    keys=(
        Key("d_model", "d_model"),
        Key("n_layer", "n_layers"),
        Key("ssm_cfg", "mixer", {}, read=_layer, write=_ssm_cfg),
        Key(
            "attn_layer_idx",
            "mixer_at",
            [],
            read=lambda layers, config: dict.fromkeys(layers or (), "attention"),
            write=_attn_layer_idx,
        ),
        Key("attn_cfg", "attention", {}, read=_attention, write=_attn_cfg),
        Key("d_intermediate", "ffn", 0, read=_ffn, write=_d_intermediate),
        Key("rms_norm", "norm", only={True: "rms", False: "layer"}),
        Key("residual_in_fp32", default=True, write=lambda spec, D: True),
        Key("fused_add_norm", default=True, write=lambda spec, D: True),
        Key("pad_vocab_size_multiple", "vocab_multiple", 8),
        Key("tie_embeddings", "tie_embeddings", True),
    ),
    rows=(
        Row("embedding.weight", "backbone.embedding.weight"),
        *affine("layers.{i}.norm", "backbone.layers.{i}.norm"),
        *affine("layers.{i}.mixer.in_proj", "backbone.layers.{i}.mixer.in_proj"),
        Row("layers.{i}.mixer.conv_weight", "backbone.layers.{i}.mixer.conv1d.weight", "c 1 k -> c k"),
        Row("layers.{i}.mixer.conv_bias", "backbone.layers.{i}.mixer.conv1d.bias"),
        Row("layers.{i}.mixer.x_proj.weight", "backbone.layers.{i}.mixer.x_proj.weight"),
        *affine("layers.{i}.mixer.dt_proj", "backbone.layers.{i}.mixer.dt_proj"),
        Row("layers.{i}.mixer.dt_bias", "backbone.layers.{i}.mixer.dt_bias"),
        Row("layers.{i}.mixer.A_log", "backbone.layers.{i}.mixer.A_log"),
        Row("layers.{i}.mixer.D", "backbone.layers.{i}.mixer.D"),
        Row("layers.{i}.mixer.norm_weight", "backbone.layers.{i}.mixer.norm.weight"),
        *affine("layers.{i}.mixer.out_proj", "backbone.layers.{i}.mixer.out_proj"),
        *affine("layers.{i}.ffn_norm", "backbone.layers.{i}.norm2"),
        Row("layers.{i}.ffn.up_proj.weight", "backbone.layers.{i}.mlp.fc1.weight", "(half h) d -> (half h) d"),
        Row("layers.{i}.ffn.down_proj.weight", "backbone.layers.{i}.mlp.fc2.weight"),
        *affine("norm", "backbone.norm_f"),
        Row("head.weight", "lm_head.weight"),
    ),
    sizes=lambda spec: {"half": 2},
    picks={"half": (1, 0)},  # in its MLP the gate comes second, in ours first
)
register(MAMBA_SSM)
