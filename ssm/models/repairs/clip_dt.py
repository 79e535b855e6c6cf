"""Clip dt, by a change of the configuration."""

from __future__ import annotations

from typing import Any

from ssm.models.backbone import LanguageModel
from ssm.models.repairs.base import REPAIRS
from ssm.specs.repairs.base import Point
from ssm.specs.repairs.clip_dt import ClipDt


@REPAIRS.function
def clip_dt(repair: ClipDt, model: LanguageModel, chosen: Point) -> LanguageModel:
    """Lower the upper limit of dt to the chosen limits, in every layer with a limit of dt."""
    for layer, limit in zip(repair.layers(model.spec), chosen, strict=True):
        if limit is not None:
            mixer: Any = model.layers[layer].mixer
            low, high = mixer.spec.dt_limit
            limits = (min(low, limit), limit if high is None else min(high, limit))
            mixer.spec = mixer.spec.model_copy(update={"dt_limit": limits})
    return model
