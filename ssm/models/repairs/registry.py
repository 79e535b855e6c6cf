"""The registry of repair functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ssm.base.plugin_modules import Modules
from ssm.models.readable import Readable
from ssm.models.trainable import TrainableModel
from ssm.specs.repairs import SPECS
from ssm.specs.repairs.base import Point

REPAIRS: Modules[Callable[[Any, TrainableModel, Point], Readable]] = Modules("ssm.models.repairs", SPECS)
