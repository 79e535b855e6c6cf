"""The quantity and the plot of CONTRIBUTING.md work after adding one file each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import newcomer
import pytest
from claims.synthetic import claim, figure_task, write_tables

from ssm.base.discovery import RegistryError
from ssm.base.tables import VERDICTS, read_table
from ssm.claims.reader import Reader

FILES = newcomer.shown("quantity") | newcomer.shown("plot")


def test_a_new_quantity_and_a_new_plot_are_used(tmp_path: Path) -> None:
    newcomer.add(tmp_path, FILES)
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


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ("position_loss", r'Wrong: reads: expected a tuple such as \("position_loss",\)$'),
        (["position_loss"], "Wrong: reads: expected a tuple"),
        (None, "Wrong: reads: expected a tuple"),
        (("position_los",), "Wrong: reads: unknown kind 'position_los'; did you mean 'position_loss'"),
    ],
)
def test_a_reader_of_an_unknown_kind_is_refused(kinds: Any, said: str) -> None:
    with pytest.raises(RegistryError, match=said):

        class Wrong(Reader):
            reads = kinds
