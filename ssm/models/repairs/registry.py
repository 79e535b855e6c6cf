"""Where the function of each repair registers itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ssm.base.pairs import Modules
from ssm.models.readable import Readable
from ssm.models.trained import Trained
from ssm.specs.repairs import SPECS
from ssm.specs.repairs.base import Point

REPAIRS: Modules[Callable[[Any, Trained, Point], Readable]] = Modules("ssm.models.repairs", SPECS)
