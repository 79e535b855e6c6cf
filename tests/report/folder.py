"""A small results folder with all files that a report reads."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claims.synthetic import Readings, claim, figure_task, write_tables

from ssm.base.files import write_json, write_text
from ssm.base.tables import VERDICTS, write_table
from ssm.claims.verdict import judge
from ssm.figures.figure import FigureTask
from ssm.specs.data import DataSpec
from ssm.specs.training import RunSpec

SVG = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="504pt" height="144pt"
 viewBox="0 0 504 144" version="1.1">
 <metadata><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">made by
 https://matplotlib.org/</rdf:RDF></metadata> <script>alert(1)</script>
 <defs><style type="text/css">*{stroke-linejoin: round}</style><path id="m1" d="M 0 0 L 9 9"/>
 <clipPath id="c1"><rect width="9" height="9"/></clipPath></defs>
 <g id="axes_1" clip-path="url(#c1)"><use xlink:href="#m1" style="stroke: #1f2328" onclick="alert(2)"/>
 <image xlink:href="https://example.org/x.png"/><path stroke="#d0d7de" d="M 0 0 H 9"/><text>a &lt; b</text></g>
</svg>
"""
DATA = {"name": "text", "corpus": {"kind": "stdlib"}}
CLAIMS = [
    claim({"kind": "perplexity_growth", "arm": "base", "times_context": 4.0}, "base_fails", above=1.5),
    claim({"kind": "perplexity_growth", "arm": "passed", "times_context": 4.0}, "passed_fails", above=1.5),
    claim({"kind": "perplexity_at", "arm": "control", "times_context": 4.0}, "control_fails", True, above=1.0),
]
READINGS: Readings = {
    (arm, seed): {"late": late + seed / 10} for arm, late in (("base", 2.9), ("passed", 1.9)) for seed in (1, 2, 3)
}


def run_spec(panel: str, arm: str, seed: int) -> RunSpec:
    model = {"name": panel, "d_model": 32, "n_layers": 2, "peak_lr": 1e-3}
    model["mixer"] = {"kind": "mamba2", "head_dim": 16, "d_state": 8}
    training: dict[str, Any] = {"context": 8, "batch_tokens": 64, "budget": {"steps": 5}}
    content = {"model": model, "data": DATA, "training": training, "seed": seed, "parent": None}
    if arm == "passed":
        content["parent"] = dict(content)
        content["training"] = training | {"initial_state": {"policy": "state_passing"}}
    return RunSpec.parse(content, "test")


MADE: dict[str, tuple[tempfile.TemporaryDirectory[str], FigureTask]] = {}  # by the arguments


def results_folder(folder: Path, target: str = "lg_fig5", **options: Any) -> FigureTask:
    """Write one figure's results into `folder`; `options` are those of `_make`. Equal calls share files."""
    key = repr((target, options))
    if key not in MADE:
        made = tempfile.TemporaryDirectory()
        MADE[key] = made, _make(Path(made.name), target, **options)
    made, task = MADE[key]
    shutil.copytree(made.name, folder, dirs_exist_ok=True)
    return task


def _make(
    folder: Path,
    target: str,
    readings: Readings | None = None,
    panels: tuple[str, ...] = ("tiny",),
    seeds: tuple[int, ...] = (1, 2, 3),
    diverged: str = "",
    dry_run: bool = False,
    claims: Sequence[dict[str, Any]] = CLAIMS,
    registered: Sequence[str] | None = None,
) -> FigureTask:
    """Write one figure's results into `folder`.

    Args:
        diverged: the arm with diverged runs.
        registered: the verdicts that were registered in time; None: all.
    """
    task = figure_task(list(claims), seeds, panels, target).model_copy(update={"dry_run": dry_run})
    if registered is not None:
        dates = {name: date for name, date in task.registered.items() if name in registered}
        task = task.model_copy(update={"registered": dates})
    series = [
        s.model_copy(
            update={
                "run": run_spec(s.panel, s.arm, s.seed).id,
                "origin": run_spec(s.panel, "base", s.seed).id if s.origin else None,
            }
        )
        for s in task.series
    ]
    task = task.model_copy(update={"series": tuple(series)})
    write_json(folder / "specs" / "figures" / f"{target}.json", task.content())
    write_tables(folder / "tables", task, READINGS if readings is None else readings)
    for ending, text in (("svg", SVG), ("png", "png"), ("pdf", "pdf")):
        write_text(folder / "figures" / f"{target}.{ending}", text)
    for s in series:
        spec = run_spec(s.panel, s.arm, s.seed)
        write_json(folder / "specs" / "runs" / f"{s.run}.json", spec.content())
        write_json(folder / "runs" / s.run / "run.json", record(spec, s.arm == diverged))
    manifest = {"corpus": {"documents": 40, "sha256": "ab" * 32}}
    write_json(folder / "tokens" / DataSpec.parse(DATA, "test").id / "manifest.json", manifest)
    verdicts = judge(task, folder / "tables")
    write_table(verdicts, VERDICTS, folder / "verdicts" / f"{target}.parquet", {"written": "2025-01-01T00:00:00+00:00"})
    return task


def record(spec: RunSpec, diverged: bool) -> dict[str, Any]:
    """A run.json."""
    return {
        "status": "diverged" if diverged else "finished",
        "message": "diverged: loss is NaN at step 3 <b>" if diverged else "finished",
        "steps": 5,
        "tokens": 320,
        "parameters": 12345,
        "seconds": 2.0,
        "tokens_per_second": 160.0,
        "device": "CPU",
        "spec": spec.content(),
        "provenance": {
            "code": {"ssm": "0.1.0", "commit": "0123456789ab-dirty"},
            "packages": {"torch": "2.9.0", "polars": "1.20.0"},
            "machine": {"python": "3.11.7", "processor": "A Processor", "cores": 2},
            "written": "2025-01-02T03:04:05+00:00",
        },
    }


def edit_json(path: Path, **changes: Any) -> None:
    write_json(path, json.loads(path.read_text()) | changes)
