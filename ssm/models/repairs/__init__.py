"""Repairs without training, one file for each: a function with the repair's name, which repairs a model."""

from __future__ import annotations

import copy

from ssm.models.readable import Readable
from ssm.models.repairs.base import REPAIRS
from ssm.models.trainable import TrainableModel
from ssm.specs.repairs import RepairSpec
from ssm.specs.repairs.base import Point

REPAIRS.discover()


def repaired(model: TrainableModel, repair: RepairSpec, chosen: Point) -> Readable:
    """The repaired model, for the chosen numbers.

    A repair of weights or of the configuration changes `model` and returns it. `Repair.check` decides which repairs a
    model of transformers supports.
    """
    return REPAIRS[repair.kind](repair, model, chosen)


def repaired_copy(model: TrainableModel, repair: RepairSpec, chosen: Point) -> Readable:
    """As `repaired`, without a change of `model`."""
    return repaired(copy.deepcopy(model), repair, chosen)
