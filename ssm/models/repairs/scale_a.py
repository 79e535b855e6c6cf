"""Scaling A's spectrum, in the weights."""

from __future__ import annotations

import math
from typing import Any

import torch

from ssm.models.backbone import LanguageModel
from ssm.specs.repairs.base import Point
from ssm.specs.repairs.scale_a import ScaleA


@torch.no_grad()
def scale_a(repair: ScaleA, model: LanguageModel, chosen: Point) -> LanguageModel:
    """A of every layer that has one times its factor: A_log of Mamba-1 and Mamba-2 is moved by its logarithm."""
    for layer, factor in zip(repair.layers(model.spec), chosen, strict=True):
        if factor is not None:
            mixer: Any = model.layers[layer].mixer
            slope = 1.0 if mixer.spec.mimetic.a is None else -mixer.spec.mimetic.a  # of log(-A) against A_log
            mixer.A_log += math.log(factor) / slope
    return model
