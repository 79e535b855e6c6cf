"""A small figure with synthetic tables, for the tests of claims and of the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ssm.base.tables import write_table
from ssm.claims.claim import JudgedFigure
from ssm.claims.estimate import Estimate
from ssm.claims.panel_tables import PanelTables
from ssm.claims.quantity import Quantity
from ssm.claims.statements import paper_of
from ssm.figures.figure import FigureTask
from ssm.specs.measurements import SCHEMAS

T = 8  # the training context
LENGTH = 32
DISTANCES = ("total_variation", "jensen_shannon", "one_minus_cosine")
REGISTERED, MEASURED = "2024-12-31T00:00:00+00:00", "2025-01-01T00:00:00+00:00"
KINDS = ("position_loss", "restart_loss", "effective_remembrance", "state_statistics", "length_class")
LABELS = {"base": "base <b>&", "passed": "State Passing", "control": "control"}

AT = {"kind": "perplexity_at", "arm": "base", "times_context": 4.0}

# (arm, seed) -> values that the tables contain. Every value may be a number or a list over sequences.
Readings = dict[tuple[str, int], dict[str, Any]]


def claim(quantity: dict[str, Any], name: str = "it", ours: bool = False, **expected: float) -> dict[str, Any]:
    """A claim as plain data."""
    return {
        "id": name,
        "says": f"the claim {name} holds",
        "paper": "about 2 < 3",
        "quantity": quantity,
        "expected": expected,
        "ours": ours,
    }


def student(values: Any) -> tuple[float, float, float]:
    """Mean and 95% interval from scipy's own distribution, independent of the tested code."""
    values = np.asarray(values, float)
    low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
    return float(values.mean()), float(low), float(high)


def same(found: Estimate, expected: Any) -> None:
    """Check value, low and high."""
    assert (found.value, found.low, found.high) == pytest.approx(tuple(expected), rel=1e-9, abs=1e-12)


def estimate(task: JudgedFigure, panel: str, quantity: Quantity, folder: Path) -> Estimate:
    """Estimate a quantity on a panel of a figure whose tables are in a folder."""
    return quantity.estimate(PanelTables(task, panel, folder))


def figure_task(
    claims: list[dict[str, Any]],
    seeds: tuple[int, ...] = (1, 2, 3),
    panels: tuple[str, ...] = ("tiny",),
    target: str = "lg_fig5",
) -> FigureTask:
    """A planned figure with three arms: base, passed (trained further from base), and control, which does not exist.

    Everything is registered the day before the tables are measured.
    """
    series = [
        {
            "arm": arm,
            "label": LABELS[arm],
            "panel": panel,
            "seed": seed,
            "context": T,
            "policy": "zero",
            "run": f"{panel}_{arm}_s{seed}",
            "origin": f"{panel}_base_s{seed}" if arm == "passed" else None,
            "tables": {kind: f"{kind}_{panel}_{arm}_s{seed}" for kind in KINDS},
        }
        for panel in panels
        for arm in ("base", "passed")
        for seed in seeds
    ]
    figure = {
        "target": target,
        "paper": paper_of(target),
        "title": "Interventions <against> base",
        "caption": "Perplexity against position & more.",
        "setting": "Mamba-2 370m, 100 steps",
        "models": list(panels),
        "data": "text",
        "seeds": list(seeds),
        "arms": {
            "base": {"label": LABELS["base"], "training": "pretrain"},
            "passed": {"label": LABELS["passed"], "training": "post", "from": "base"},
            "control": None,
        },
        "measurements": [{"kind": kind} | ({} if kind == "length_class" else {"times_context": 4.0}) for kind in KINDS],
        "drawings": [{"kind": "position_curves"}],
        "claims": claims,
        "deviations": ["bytes, not words"],
    }
    task = FigureTask.parse({"figure": figure, "scale": "smoke", "series": series, "tables": ["model-size-1"]}, "test")
    names = [name for name, _, _ in task.verdicts]
    return task.model_copy(
        update={"numbers": {name: name for name in names}, "registered": dict.fromkeys(names, REGISTERED)}
    )


def _each(value: Any, sequences: int) -> list[float]:
    return list(value) if isinstance(value, list) else [value] * sequences


def write_tables(folder: Path, task: FigureTask, readings: Readings, sequences: int = 4) -> None:
    """Write all tables of the task. Keys of a reading:

    - early, late: loss in nats on [0, T) and after it; restart: loss after a restart, in nats
    - norm: growth of the norm from T to 32; heads: the same of the std, a number or one for each of the 4 heads
    - remembrance: value at t = 24, for all distances; cosine: factor of one_minus_cosine, a number or one for each t
    - excess
    """
    for series in task.series:
        said = {"early": 2.0, "late": 2.0, "restart": 2.0, "norm": 1.0, "heads": 1.0, "remembrance": 0.5}
        said |= {"excess": 0.0, "cosine": 1.0} | readings.get((series.arm, series.seed), {})
        early, late, restart, norm, remembrance = (
            _each(said[key], sequences) for key in ("early", "late", "restart", "norm", "remembrance")
        )
        rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
        for s in range(sequences):
            for start in range(0, LENGTH, 2):
                loss = early[s] if start < T else late[s]
                rows["position_loss"].append(
                    {"sequence": s, "position_from": start, "position_to": start + 2, "loss": loss}
                )
            for stop in (8, 16, 32):
                rows["restart_loss"].append(
                    {"sequence": s, "position_from": 3 * stop // 4, "position_to": stop, "loss": restart[s]}
                )
            for number, distance in enumerate(DISTANCES):
                for t, cosine in zip((0, 8, 16, 24, 28, 31), _each(said["cosine"], 6), strict=True):
                    value = remembrance[s] * t / 24 * (1 if number < 2 else cosine)
                    rows["effective_remembrance"].append(
                        {"sequence": s, "t": t, "length": LENGTH, "distance": distance, "value": value}
                    )
            for position in (1, 2, 4, 8, 16, 32):
                grown = {16: norm[s] ** 0.5, 32: norm[s]}.get(position, 1.0)
                rows["state_statistics"].append(_state(s, position, -1, -1, norm=3.0 * grown))
                for head in range(4):
                    std = _each(said["heads"], 4)[head] if position == 32 else 1.0
                    rows["state_statistics"].append(_state(s, position, head // 2, head % 2, std=std))
        rows["length_class"].append(
            {
                "class": "none",
                "extends_from": None,
                "largest_rise": 0.1,
                "largest_rise_error": 0.01,
                "generalizes": said["excess"] <= 0,
                "best_position": 7,
                "excess": said["excess"],
                "excess_error": 0.1,
                "excess_sequences": sequences,
                "context": T,
                "length": LENGTH,
                "sequences": sequences,
            }
        )
        for kind, name in series.tables.items():
            _write(folder / f"{name}.parquet", kind, rows[kind])
    sizes = [_size("tiny", 1000, 800), _size("unpublished", 1000, None)]
    _write(folder / "model-size-1.parquet", "model_size", sizes)


def _write(path: Path, kind: str, rows: list[dict[str, Any]]) -> None:
    frame = pl.DataFrame(rows, schema=dict(SCHEMAS[kind].columns))
    write_table(frame, SCHEMAS[kind], path, {"written": MEASURED, "seconds": 1.5})


def _state(s: int, position: int, layer: int, head: int, norm: float = 1.0, std: float = 1.0) -> dict[str, Any]:
    return {"sequence": s, "position": position, "layer": layer, "head": head, "norm": norm, "mean": 0.0, "std": std}


def _size(model: str, parameters: int, published: int | None) -> dict[str, Any]:
    return {
        "model": model,
        "mixer": "mamba2",
        "n_layers": 2,
        "d_model": 8,
        "state_shape": "2 x 4 x 8",
        "peak_lr": 1e-3,
        "parameters": parameters,
        "embedding_parameters": 100,
        "published_parameters": published,
    }
