"""Scale A, by a change of the weights."""

from __future__ import annotations

import math
from typing import Any

import torch

from ssm.models.backbone import LanguageModel
from ssm.models.foreign import ForeignModel
from ssm.models.repairs.base import REPAIRS
from ssm.models.trainable import TrainableModel
from ssm.specs.repairs.base import Point
from ssm.specs.repairs.scale_a import ScaleA


@REPAIRS.function
@torch.no_grad()
def scale_a(repair: ScaleA, model: TrainableModel, chosen: Point) -> TrainableModel:
    """Multiply A of each layer that has an A by its factor: A_log changes by the factor's logarithm."""
    for layer, factor in zip(repair.layers(model.spec), chosen, strict=True):
        if factor is not None and isinstance(model, ForeignModel):
            model.a_log(layer).add_(math.log(factor))
        elif factor is not None:
            assert isinstance(model, LanguageModel)
            mixer: Any = model.layers[layer].mixer
            mimetic = getattr(mixer.spec, "mimetic", None)
            slope = -mimetic.a if mimetic is not None and mimetic.a is not None else 1.0  # log(-A) = slope A_log
            mixer.A_log += math.log(factor) / slope
    return model
