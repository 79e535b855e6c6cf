"""A newcomer's quantity and drawing: two files and two lines each, and a figure is judged and drawn by them."""

from __future__ import annotations

import json
from pathlib import Path

import newcomer
import pytest
from claims.synthetic import claim, figure_task, write_tables

from ssm.base.tables import VERDICTS, read_table

QUANTITY_SPEC = '''
"""The spec of the loss at the very beginning."""

from typing import ClassVar, Literal

from ssm.specs.quantities.base import ArmQuantity


class FirstLoss(ArmQuantity):
    """Loss of the first bin, nats."""

    kind: Literal["first_loss"] = "first_loss"
    reads: ClassVar[tuple[str, ...]] = ("position_loss",)
'''
ESTIMATOR = '''
"""The loss at the very beginning."""

from ssm.claims.estimate import mean_reading
from ssm.claims.quantities.base import SeriesEstimator


class FirstLossEstimator(SeriesEstimator):
    """A mean over sequences."""

    def read(self, panel, series):
        table = panel.table(series, self.spec.name_of("position_loss"), "position_loss")
        return mean_reading(table.filter(position_from=0).sort("sequence")["loss"].to_numpy())

    def describe(self, panel):
        return f"first loss of {panel.label(self.spec.arm)}"
'''
DRAWING_SPEC = '''
"""The spec of a count."""

from typing import ClassVar, Literal

from ssm.specs.drawings.base import SeriesDrawing


class SequenceCount(SeriesDrawing):
    """How many sequences every series was measured on."""

    kind: Literal["sequence_count"] = "sequence_count"
    reads: ClassVar[tuple[str, ...]] = ("position_loss",)
'''
DRAWING = '''
"""A count."""

from ssm.figures.data import loaded, panels
from ssm.figures.panel import Row


def sequence_count(drawing, task, tables, styles):
    found = [one for model in panels(task) for one in loaded(task, tables, model, *drawing.names, "position_loss")]
    lines = [f"{series.label}: {table['sequence'].n_unique()} read" for series, table in found]
    return [Row(1.0, [lambda axes, columns: axes.text(0, 0, "; ".join(lines))], 1)]
'''
FILES = {
    "specs/quantities/first_loss.py": QUANTITY_SPEC,
    "claims/quantities/first_loss.py": ESTIMATOR,
    "specs/drawings/sequence_count.py": DRAWING_SPEC,
    "figures/drawings/sequence_count.py": DRAWING,
}
LINES = {
    "specs/quantities": (
        "from ssm.specs.quantities.first_loss import FirstLoss\n",
        "SPECS: ",
        "    FirstLoss,\n",
    ),
    "claims/quantities": (
        "from ssm.claims.quantities.first_loss import FirstLossEstimator\n",
        "ESTIMATORS: ",
        '    "first_loss": FirstLossEstimator,\n',
    ),
    "specs/drawings": (
        "from ssm.specs.drawings.sequence_count import SequenceCount\n",
        "SPECS: ",
        "    SequenceCount,\n",
    ),
    "figures/drawings": (
        "from ssm.figures.drawings.sequence_count import sequence_count\n",
        "DRAWINGS: ",
        '    "sequence_count": sequence_count,\n',
    ),
}


def test_a_newcomer_is_judged_and_drawn(tmp_path: Path) -> None:
    newcomer.add(tmp_path, FILES, LINES)
    task = figure_task([claim({"kind": "perplexity_at", "arm": "base", "times_context": 4.0}, above=1.5)])
    write_tables(tmp_path, task, {("base", seed): {"early": 2.0 + seed / 10} for seed in (1, 2, 3)})
    content = task.content()
    content["figure"]["drawings"] = [{"kind": "sequence_count"}]
    content["figure"]["claims"][0]["quantity"] = {"kind": "first_loss", "arm": "base"}
    (tmp_path / "task.json").write_text(json.dumps(content))
    judged = newcomer.python(tmp_path, "-m", "ssm", "judge", "task.json", "--tables", ".", "--out", "verdicts.parquet")
    assert judged.returncode == 0, judged.stderr
    (row,) = read_table(tmp_path / "verdicts.parquet", VERDICTS).to_dicts()
    assert (row["verdict"], row["estimate"]) == ("confirmed", pytest.approx(2.2))
    assert row["quantity"] == "first loss of base <b>&"
    drawn = newcomer.python(tmp_path, "-m", "ssm", "plot", "task.json", "--tables", ".", "--out", "pictures")
    assert drawn.returncode == 0, drawn.stderr
    assert "State Passing: 4 read" in (tmp_path / "pictures" / "lg_fig5.svg").read_text()


FORGOTTEN = {
    "how it is read": (
        "claims/quantities/first_loss.py",
        None,
        "ssm/specs/quantities/first_loss.py: the spec 'first_loss' has no module: "
        "add ssm/claims/quantities/first_loss.py, and its line in ssm/claims/quantities/__init__.py",
    ),
    "what it reads": (
        "specs/quantities/first_loss.py",
        '    reads: ClassVar[tuple[str, ...]] = ("position_loss",)\n',
        "ssm/specs/quantities/first_loss.py: FirstLoss lacks reads",
    ),
    "a line of a registry": (
        "claims/quantities/__init__.py",
        "".join(LINES["claims/quantities"][::2]),
        "ssm/claims/quantities/first_loss.py is in no registry: add its line in ssm/claims/quantities/__init__.py",
    ),
    "how it is drawn": (
        "figures/drawings/sequence_count.py",
        None,
        "ssm/specs/drawings/sequence_count.py: the spec 'sequence_count' has no module: "
        "add ssm/figures/drawings/sequence_count.py, and its line in ssm/figures/drawings/__init__.py",
    ),
    "a line of the specs": (
        "specs/drawings/__init__.py",
        "    SequenceCount,\n",
        "ssm/specs/drawings/__init__.py: no line for 'sequence_count' of ssm/specs/drawings/sequence_count.py",
    ),
}


@pytest.mark.parametrize("what", FORGOTTEN)
def test_what_was_forgotten_is_one_line_before_anything_is_planned(what: str, tmp_path: Path) -> None:
    name, lacking, said = FORGOTTEN[what]
    newcomer.add(tmp_path, FILES, LINES)
    path = tmp_path / "ssm" / name
    if lacking is None:
        path.unlink()
    else:
        for line in lacking.splitlines(keepends=True):
            assert line in path.read_text()
            path.write_text(path.read_text().replace(line, ""))
    done = newcomer.python(tmp_path, "-m", "ssm", "plan")
    assert done.stderr == f"ssm plan: {said}\n"
    assert done.returncode == 2
