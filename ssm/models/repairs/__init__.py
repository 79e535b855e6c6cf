"""Repairs without training, one file each: a function of the repair's name, from a model to a repaired one."""

from __future__ import annotations

from ssm.models.readable import Readable
from ssm.models.repairs.registry import REPAIRS
from ssm.models.trainable import TrainableModel
from ssm.specs.repairs import RepairSpec
from ssm.specs.repairs.base import Point

REPAIRS.discover()


def repaired(model: TrainableModel, repair: RepairSpec, chosen: Point) -> Readable:
    """The model with a repair, at the numbers that were chosen.

    One that is in the weights or in the configuration changes `model` itself, which is given back. Models of
    transformers are given those alone that their spec's layers have (`Repair.check`).
    """
    return REPAIRS[repair.kind](repair, model, chosen)
