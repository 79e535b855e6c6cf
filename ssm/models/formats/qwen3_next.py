"""transformers' Qwen3-Next (model_type "qwen3_next"): Gated DeltaNet, attention, and experts in most layers."""

from __future__ import annotations

from ssm.models.formats.format import Format, Row, register
from ssm.models.formats.keys import Config, Fields, Key
from ssm.models.formats.parts import mixer_of
from ssm.models.formats.qwen3_5 import AT, DELTA, IGNORED, OURS, ROWS, expert_keys, keys_around, sizes_of
from ssm.specs.mixers.gated_deltanet import GatedDeltaNetMixer
from ssm.specs.model import ModelSpec


def _ffns(dense: list[int] | None, config: Config) -> Fields:
    """Which layers have experts, and which a gated MLP."""
    layers, step, only = config["num_hidden_layers"], config["decoder_sparse_step"], dense or ()
    without = [i for i in range(layers) if i in only or (i + 1) % step or not config["num_experts"]]
    if len(without) == layers:
        return {"ffn": "dense"}
    return {"ffn": "experts", "ffn_at": dict.fromkeys(without, "dense")}


def _mlp_only_layers(spec: ModelSpec, D: int) -> list[int]:
    return [i for i, ffn in enumerate(spec.ffns()) if ffn is not None and ffn.kind == "gated_mlp"]


def _places(spec: ModelSpec) -> dict[str, list[int]]:
    """Our rows for theirs, which are grouped by head of keys: q, k, the group's v and gates; its beta and dt.

    Our order is q, k, v, beta, dt, gate, each for all heads.
    """
    delta = mixer_of(spec, GatedDeltaNetMixer)
    (H, K, V), G = delta.state_shape(spec.d_model), delta.key_heads
    values, beta = 2 * G * K, delta.convolved(spec.d_model)
    qkvz = ((0, K), (G * K, K), (values, H // G * V), (beta + 2 * H, H // G * V))  # first row, rows of one group
    ba = ((beta, H // G), (beta + H, H // G))

    def by_group(*parts: tuple[int, int]) -> list[int]:
        return [row for g in range(G) for start, n in parts for row in range(start + g * n, start + (g + 1) * n)]

    return {"qkvz": by_group(*qkvz), "ba": by_group(*ba)}


QWEN3_NEXT = Format(
    key="qwen3_next",
    title="transformers' Qwen3-Next",
    model_type="qwen3_next",
    architecture="Qwen3NextForCausalLM",
    ours=OURS | {"experts": {"kind": "experts"}, "dense": {"kind": "gated_mlp"}},
    keys=(
        *keys_around(kv_heads=2),
        *expert_keys("experts", experts=512, chosen=10),
        Key("norm_topk_prob", "experts.normalize", True),
        Key("intermediate_size", "dense.d_hidden", 5632),
        Key("decoder_sparse_step", default=1),
        Key("mlp_only_layers", "", None, read=_ffns, write=_mlp_only_layers),
    ),
    rows=(
        *ROWS,
        Row(
            f"{AT}mixer.in_proj.weight",
            (f"{DELTA}in_proj_qkvz.weight", f"{DELTA}in_proj_ba.weight"),
            parts=("qkvz", "ba"),
            mixer="gated_deltanet",
        ),
    ),
    sizes=sizes_of,
    places=_places,
    ignored=IGNORED,
)
register(QWEN3_NEXT)
