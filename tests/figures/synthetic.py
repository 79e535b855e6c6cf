"""Synthetic tables with known curves, and the figure tasks that read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ssm.base.tables import read_table, write_table
from ssm.claims.statements import paper_of
from ssm.figures.figure import FigureTask
from ssm.specs.measurements import SCHEMAS

Shape = Callable[[float], float]


def quarter_edges(length: int) -> list[int]:
    """Edges of bins: 0, 1 ... 8, 10, 12, 14, 16, 20 ..., with four equal bins per octave."""
    edges = list(range(min(length, 8) + 1))
    while edges[-1] < length:
        octave = 2 ** (edges[-1].bit_length() - 1)
        edges += [octave + octave * part // 4 for part in (1, 2, 3, 4)]
    return edges


def position_loss(path: Path, length: int, loss: Shape, offsets: Sequence[float] = (0.0, 0.1)) -> None:
    """Sequence s has the loss `loss(position_to) + offsets[s]` in every bin."""
    edges = quarter_edges(length)
    rows = [
        {"sequence": s, "position_from": a, "position_to": b, "loss": loss(b) + offset}
        for s, offset in enumerate(offsets)
        for a, b in pairwise(edges)
    ]
    save(path, "position_loss", rows)


def restart_loss(path: Path, context: int, length: int, loss: Shape) -> None:
    """One bin [3/4 kT, kT) for each k = 1, 2, 4 ..."""
    ends = [context * 2**i for i in range(20) if context * 2**i <= length]
    rows = [
        {"sequence": s, "position_from": 3 * end // 4, "position_to": end, "loss": loss(end) + offset}
        for s, offset in enumerate((0.0, 0.1))
        for end in ends
    ]
    save(path, "restart_loss", rows)


def remembrance(path: Path, length: int, value: Shape, distances: Sequence[str], sequences: int = 3) -> None:
    """Value `value(t)`, scaled by 1, 0.8, 0.6 for the distances in order, with a small spread over sequences."""
    rows = [
        {"sequence": s, "t": t, "length": length, "distance": d, "value": value(t) * (1 - 0.2 * i) + 0.01 * (s - 1)}
        for s in range(sequences)
        for t in [*range(0, length, max(1, length // 32)), length - 1]
        for i, d in enumerate(distances)
    ]
    save(path, "effective_remembrance", rows)


def state_statistics(
    path: Path,
    length: int,
    norm: Shape,
    std: Callable[[int, int, float], float] = lambda layer, head, p: 1.0,
) -> None:
    """Norm `norm(position)` and std of heads `std(layer, head, position)`, times a factor of each sequence.

    Two sequences of a model with two layers, each with two heads.
    """
    rows = []
    for s, factor in enumerate((0.95, 1.05)):
        position = 4
        while position <= length:
            rows.append(_state(s, position, -1, -1, norm=norm(position) * factor))
            for layer in range(2):
                for head in range(2):
                    rows.append(_state(s, position, layer, head, std=std(layer, head, position) * factor))
            position *= 2
    save(path, "state_statistics", rows)


def length_class(path: Path, kind: str, excess: float | None) -> None:
    """The class of one run."""
    row = dict.fromkeys(SCHEMAS["length_class"].columns) | {
        "class": kind,
        "excess": excess,
        "excess_error": None if excess is None else 0.02,
        "context": 32,
        "length": 1024,
        "sequences": 2,
    }
    save(path, "length_class", [row])


def model_size(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Models; the default values are those of a small model."""
    small = {
        "model": "tiny", "mixer": "mamba2", "n_layers": 2, "d_model": 64, "state_shape": "4 x 16 x 32",
        "peak_lr": 1e-3, "parameters": 123456, "embedding_parameters": 4096, "published_parameters": None,
    }  # fmt: skip
    save(path, "model_size", [small | row for row in rows])


def taxonomy(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Recurrent systems; the default values are those of S5."""
    s5 = {
        "model": "s5", "mixer": "s5", "system": "S5", "paper": "Smith et al. 2023", "scan": "diagonal_scan",
        "decay": "by channel", "complex": True, "recurrence": "$x_t = x_{t-1} + B u_t$\n$y_t = x_t$",
        "state_shape": "1 x 32 x 2", "state_numbers": 64, "state_numbers_late": 64, "length": 64,
        "selective": False, "linear": True, "identity": False,
    }  # fmt: skip
    save(path, "taxonomy", [s5 | row for row in rows])


def cost(path: Path, exponents: dict[str, float]) -> None:
    """Costs that grow as T to the given power of each model."""
    rows = [
        {"model": model, "mixer": "s5", "length": length, "cost": kind, "repeat": 1, "value": length**power}
        for model, power in exponents.items()
        for length in (8, 16, 32)
        for kind in ("training_step", "training_memory", "decoding_step", "state")
    ]
    save(path, "cost", rows)


def save(path: Path, kind: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as a table of the schema `kind`."""
    write_table(pl.DataFrame(rows, schema=SCHEMAS[kind].columns), SCHEMAS[kind], path, {})


def diverge(path: Path, kind: str) -> None:
    """Mark a table as measured on a diverged run. Its values stay those of the last finite weights."""
    write_table(read_table(path, SCHEMAS[kind]), SCHEMAS[kind], path, {"diverged": "loss is NaN at step 3"})


def series(arm: str, seed: int, panel: str = "tiny", context: int = 32, **tables: str) -> dict[str, Any]:
    """One series as plain data, with its tables by kind of measurement."""
    return {
        "arm": arm, "label": arm.replace("_", " "), "panel": panel, "seed": seed, "context": context,
        "policy": "zero", "run": f"{arm}_{seed}", "tables": tables,
    }  # fmt: skip


def task(drawings: Sequence[dict[str, Any]], all_series: Sequence[dict[str, Any]], **figure: Any) -> FigureTask:
    """A figure task that collects the given series."""
    extra, target = figure.pop("tables", []), figure.pop("target", "lg_fig5")
    content = {
        "target": target, "paper": paper_of(target), "title": "t", "caption": "c", "setting": "s",
        "collect": ["lg_fig1"], "drawings": list(drawings),
    } | figure  # fmt: skip
    plan = {"figure": content, "scale": "smoke", "series": list(all_series), "tables": extra}
    return FigureTask.parse(plan, "synthetic")


def line(axes: Axes, label: str) -> Line2D:
    """The only line with this label."""
    (found,) = (each for each in axes.lines if each.get_label() == label)
    return found


def _state(sequence: int, position: int, layer: int, head: int, norm: float = 1.0, std: float = 1.0) -> dict[str, Any]:
    return {
        "sequence": sequence, "position": position, "layer": layer, "head": head, "norm": norm, "mean": 0.0, "std": std,
    }  # fmt: skip
