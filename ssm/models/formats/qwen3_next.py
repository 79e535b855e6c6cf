"""transformers' Qwen3-Next (model_type "qwen3_next"): Gated DeltaNet, attention, and experts in most layers."""

from __future__ import annotations

from typing import Any

from ssm.models.formats.format import Config, Fields, Format, Row
from ssm.models.formats.parts import mixer_of
from ssm.models.formats.qwen_parts import (
    AT,
    DEFAULTS,
    DELTA,
    EXPERTS,
    FIXED,
    IGNORED,
    ROWS,
    TIED,
    config_around,
    config_of_experts,
    dense,
    experts,
    fields_of,
    sizes_of,
)
from ssm.specs.ffn.experts import Experts
from ssm.specs.ffn.gated_mlp import GatedMlp
from ssm.specs.mixers.gated_deltanet import GatedDeltaNetMixer
from ssm.specs.model import ModelSpec


def _fields(config: Config) -> tuple[Fields, int]:
    layers, step, only = config["num_hidden_layers"], config["decoder_sparse_step"], config["mlp_only_layers"] or ()
    without = [i for i in range(layers) if i in only or (i + 1) % step or not config["num_experts"]]
    if len(without) == layers:
        return fields_of(config, {"ffn": dense(config)})
    return fields_of(config, {"ffn": experts(config), "ffn_at": {i: dense(config) for i in without}})


def _config(spec: ModelSpec, vocab_size: int) -> dict[str, Any]:
    ffns = spec.ffns()
    config = config_around(spec, vocab_size) | {"num_experts": 0, "decoder_sparse_step": 1}
    config["mlp_only_layers"] = [i for i, ffn in enumerate(ffns) if isinstance(ffn, GatedMlp)]
    for ffn in ffns:
        if isinstance(ffn, Experts):
            config |= config_of_experts(ffn)
        elif isinstance(ffn, GatedMlp):
            config["intermediate_size"] = ffn.d_hidden
        else:
            raise ValueError("it has experts, or a gated perceptron")
    return config


def _places(spec: ModelSpec) -> dict[str, list[int]]:
    """Theirs lie by head of keys: q, k, its heads' v and gates; their beta and dt. Ours: q, k, v, beta, dt, gate."""
    delta = mixer_of(spec, GatedDeltaNetMixer)
    (H, K, V), G = delta.state_shape(spec.d_model), delta.key_heads
    values, beta = 2 * G * K, delta.convolved(spec.d_model)
    qkvz = ((0, K), (G * K, K), (values, H // G * V), (beta + 2 * H, H // G * V))  # where it starts, rows of a group
    ba = ((beta, H // G), (beta + H, H // G))

    def by_group(*parts: tuple[int, int]) -> list[int]:
        return [row for g in range(G) for start, n in parts for row in range(start + g * n, start + (g + 1) * n)]

    return {"qkvz": by_group(*qkvz), "ba": by_group(*ba)}


QWEN3_NEXT = Format(
    key="qwen3_next",
    title="transformers' Qwen3-Next",
    model_type="qwen3_next",
    architecture="Qwen3NextForCausalLM",
    rows=(
        *ROWS,
        Row(
            f"{AT}mixer.in_proj.weight",
            (f"{DELTA}in_proj_qkvz.weight", f"{DELTA}in_proj_ba.weight"),
            parts=("qkvz", "ba"),
            mixer="gated_deltanet",
        ),
    ),
    defaults=DEFAULTS
    | EXPERTS
    | {
        "num_experts": 512, "num_experts_per_tok": 10, "intermediate_size": 5632, "decoder_sparse_step": 1,
        "mlp_only_layers": None,
    },
    fixed=FIXED,
    fields=_fields,
    config=_config,
    tied=TIED,
    sizes=sizes_of,
    places=_places,
    ignored=IGNORED,
)  # fmt: skip
