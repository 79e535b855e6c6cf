"""Models with their configuration and size, as a printed table (lg Table 2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ssm.base.counting import short_parameters
from ssm.claims.series import PlannedFigure
from ssm.figures.colors import GRID, INK
from ssm.figures.data import own_table
from ssm.figures.plot import Plot
from ssm.figures.rows import Row
from ssm.figures.style import SMALL, ArmStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _count(value: int | None) -> str:
    """A dash if there is no number."""
    return "–" if value is None else short_parameters(value)


def _rate(row: dict[str, Any]) -> str:
    mantissa, exponent = f"{row['peak_lr']:.1e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


# head, right edge as a fraction of the width, text of a row
COLUMNS: tuple[tuple[str, float, Callable[[dict[str, Any]], str]], ...] = (
    ("layers", 0.34, lambda row: str(row["n_layers"])),
    ("width D", 0.45, lambda row: str(row["d_model"])),
    ("state of\na layer", 0.66, lambda row: row["state_shape"].replace("x", "×")),
    ("peak LR", 0.79, _rate),
    ("para-\nmeters", 0.90, lambda row: _count(row["parameters"])),
    ("paper's", 1.0, lambda row: _count(row["published_parameters"])),
)


class ConfigurationTable(Plot):
    """Models with their configuration and number of parameters, as a table."""

    kind: Literal["configuration_table"] = "configuration_table"
    reads: ClassVar[tuple[str, ...]] = ("model_size",)

    def draw(self, task: PlannedFigure, tables: Path, styles: dict[str, ArmStyle]) -> list[Row]:
        """One line for each model, in the order of the model_size table."""
        frame = own_table(task, tables, "model_size")
        if frame is None:
            return []
        models = frame.unique("model", maintain_order=True).to_dicts()
        return [Row(0.6 + 0.27 * len(models), [lambda axes, _: _draw(axes, models, task)], 1)]


def _draw(axes: Axes, models: list[dict[str, Any]], task: PlannedFigure) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(models) + 0.1, -2.0)
    axes.text(0, -0.45, "model", weight="bold", va="bottom", fontsize=SMALL)
    for head, edge, _ in COLUMNS:
        axes.text(edge, -0.45, head, weight="bold", ha="right", va="bottom", fontsize=SMALL)
    axes.plot([0, 1], [-0.3, -0.3], color=INK, linewidth=1.2)
    for place, model in enumerate(models):
        axes.text(0, place + 0.3, task.title_of(model["model"]), va="center", fontsize=SMALL)
        for _, edge, text in COLUMNS:
            axes.text(edge, place + 0.3, text(model), ha="right", va="center", fontsize=SMALL)
        axes.plot([0, 1], [place + 0.85, place + 0.85], color=GRID, linewidth=0.7)
