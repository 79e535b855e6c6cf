"""What several formats read and write in the same way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from ssm.models.formats.format import Config
from ssm.specs.ffn.experts import Experts
from ssm.specs.ffn.gated_mlp import GatedMlp
from ssm.specs.ffn.mlp import Mlp
from ssm.specs.ffn.rwkv_channel_mix import RwkvChannelMix
from ssm.specs.mixers.base import MixerSpecBase
from ssm.specs.model import ModelSpec

M = TypeVar("M", bound=MixerSpecBase)
F = TypeVar("F", Mlp, GatedMlp, RwkvChannelMix, Experts)


def mixer_of(spec: ModelSpec, kind: type[M]) -> M:
    """The mixer that all layers have.

    Raises:
        ValueError: it is of another kind.
    """
    if not isinstance(spec.mixer, kind):
        raise ValueError(f"its mixer is {spec.mixer.kind}")
    return spec.mixer


def ffn_of(spec: ModelSpec, kind: type[F]) -> F:
    """The ffn.

    Raises:
        ValueError: there is none, or one of another kind.
    """
    if not isinstance(spec.ffn, kind):
        raise ValueError("its ffn is none" if spec.ffn is None else f"its ffn is {spec.ffn.kind}")
    return spec.ffn


def as_limit(pair: Sequence[float]) -> tuple[float, float | None]:
    """(low, high), where an infinite high is None."""
    low, high = pair
    return float(low), None if math.isinf(high) else float(high)


def rotary(config: Config, base: str, share: str) -> tuple[float, float]:
    """The base of rotary positions and the share of a head's dimensions that is rotated.

    Args:
        config: transformers' new files have them in "rope_parameters", the old ones by themselves.
        base, share: the names of the old ones.

    Raises:
        ValueError: positions that are scaled or interpolated.
    """
    given = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling")
    if scaling is not None or given.get("rope_type", "default") != "default":
        raise ValueError(f"its rotary positions are scaled ({scaling or given}), and ours are not")
    named = {"rope_theta": config[base], "partial_rotary_factor": config[share]} | given
    return float(named["rope_theta"]), float(named["partial_rotary_factor"])
