"""How the parts of a picture are drawn from tables, one file each: a function that gives rows of panels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ssm.figures.drawings.attention_maps import attention_maps
from ssm.figures.drawings.bars import bars
from ssm.figures.drawings.configuration_table import configuration_table
from ssm.figures.drawings.cost_curves import cost_curves
from ssm.figures.drawings.curves import curves
from ssm.figures.drawings.head_std import head_std
from ssm.figures.drawings.heat_map import heat_map
from ssm.figures.drawings.learning_curves import learning_curves
from ssm.figures.drawings.length_classes import length_classes
from ssm.figures.drawings.position_curves import position_curves
from ssm.figures.drawings.remembrance import remembrance
from ssm.figures.drawings.state_norm import state_norm
from ssm.figures.drawings.sweep import sweep
from ssm.figures.drawings.taxonomy_table import taxonomy_table
from ssm.figures.drawings.text import text
from ssm.figures.panel import Row
from ssm.figures.style import ArmStyle
from ssm.specs.drawings import SPECS
from ssm.specs.figure import FigureTask
from ssm.specs.registry import check_modules

Draw = Callable[[Any, FigureTask, Path, dict[str, ArmStyle]], list[Row]]  # of a spec, a task, its tables, arms' looks

DRAWINGS: dict[str, Draw] = {
    "curves": curves,
    "position_curves": position_curves,
    "state_norm": state_norm,
    "head_std": head_std,
    "remembrance": remembrance,
    "length_classes": length_classes,
    "configuration_table": configuration_table,
    "taxonomy_table": taxonomy_table,
    "cost_curves": cost_curves,
    "learning_curves": learning_curves,
    "sweep": sweep,
    "bars": bars,
    "heat_map": heat_map,
    "attention_maps": attention_maps,
    "text": text,
}
check_modules(__name__, DRAWINGS, SPECS)
