"""Made-up tables for every measurement of a plan: the keys that a real table has, and random values."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from figures.synthetic import quarter_edges

from ssm.base.schema import Schema
from ssm.base.tables import write_table
from ssm.plan.plan import Plan
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements import SCHEMAS
from ssm.specs.mixers import SPECS as MIXERS

Keys = Iterable[dict[str, Any]]
SAMPLES = 2  # sequences or examples of a table
POINTS = 12  # of a curve whose number of points is known only after training


def write(plan: Plan, tables: Path) -> None:
    """Write a table for every measurement of the plan."""
    for name, task in plan.measurements.items():
        kind = task.measurement.kind
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        keys = list(KEYS[kind](task))
        rows = [dict.fromkeys(SCHEMAS[kind].columns) | row for row in keys]
        frame = pl.DataFrame(rows, schema=SCHEMAS[kind].columns)
        write_table(_with_values(frame, SCHEMAS[kind], rng), SCHEMAS[kind], tables / f"{name}.parquet", {})


def _with_values(frame: pl.DataFrame, schema: Schema, rng: np.random.Generator) -> pl.DataFrame:
    """The frame with random numbers in columns that are no keys and have no values yet."""
    level, slope = rng.uniform(0.3, 0.7), rng.uniform(-0.2, 0.4)
    for column, kind in schema.columns.items():
        if column in schema.keys or frame[column].null_count() < frame.height:
            continue
        values = level + slope * np.linspace(0, 1, frame.height) + rng.normal(0, 0.05, frame.height)
        if kind == pl.Boolean():
            frame = frame.with_columns(pl.Series(column, rng.uniform(size=frame.height) < values))
        elif kind == pl.String():
            frame = frame.with_columns(pl.lit("some words of a text").alias(column))
        else:
            numbers = np.abs(values) * (1000 if kind == pl.Int64() else 1)
            frame = frame.with_columns(pl.Series(column, numbers).cast(kind))
    return frame


def _bins(task: MeasurementTask) -> Iterator[dict[str, Any]]:
    spec: Any = task.measurement
    for sequence, (start, end) in itertools.product(range(SAMPLES), pairwise(quarter_edges(spec.length))):
        yield {"sequence": sequence, "position_from": start, "position_to": end}


def _restarts(task: MeasurementTask) -> Iterator[dict[str, Any]]:
    spec: Any = task.measurement
    ends = [spec.context * 2**i for i in range(20) if spec.context * 2**i <= spec.length]
    for sequence, end in itertools.product(range(SAMPLES), ends):
        yield {"sequence": sequence, "position_from": 3 * end // 4, "position_to": end}


def _answers(task: MeasurementTask) -> Iterator[dict[str, Any]]:
    spec: Any = task.measurement
    for number, one in enumerate(spec.sets()):
        lengths = sorted({part.length for part in one.mix if hasattr(part, "length")})
        pairs = sorted({float(part.pairs) for part in one.mix if hasattr(part, "pairs")})
        for row in _product(
            length=[spec.lengths[number]] if spec.lengths else lengths or [10],
            group=one.groups,
            example=range(SAMPLES),
            difficulty=pairs or getattr(one, "depths", [0.5, 1.0]),
        ):
            yield row | {"answer": 0}


def _maps(task: MeasurementTask) -> Iterator[dict[str, Any]]:
    spec: Any = task.measurement
    layers = spec.layers or range(1, task.run.own_model.n_layers + 1) if task.run else (1,)
    for layer, query in itertools.product(layers, range(21)):
        for key in range(query + 1):
            offset = key - (query - 10)
            yield {"example": 0, "layer": layer, "query": query, "key": key, "offset": offset, "behind": offset == 0}


def _replaced(spec: Any, **others: Iterable[Any]) -> Iterator[dict[str, Any]]:
    length = max(end for _, end in spec.regions)
    regions = [(end - start, start / (length - (end - start)), start) for start, end in spec.regions]
    for (pixels, position, start), values in itertools.product(
        [(0, None, 0), *regions], itertools.product(*others.values())
    ):
        yield {"pixels": pixels, "position": position, "start": start} | dict(zip(others, values, strict=True))


def _states(task: MeasurementTask) -> Iterator[dict[str, Any]]:
    spec: Any = task.measurement
    positions = [2**i for i in range(20) if 2**i <= spec.length]
    heads = [(-1, -1), *itertools.product(range(2), range(4))]
    for sequence, position, (layer, head) in itertools.product(range(SAMPLES), positions, heads):
        yield {"sequence": sequence, "position": position, "layer": layer, "head": head}


def _product(**values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for one in itertools.product(*values.values()):
        yield dict(zip(values, one, strict=True))


def _doubled(length: int) -> list[int]:
    return [2**i for i in range(20) if 2**i <= length]


def _depths(task: MeasurementTask) -> Iterator[dict[str, Any]]:
    layers = task.run.own_model.n_layers if task.run else 1
    for row in _product(sequence=range(SAMPLES), layer=range(1, layers + 1), signal=("b", "h", "mixer", "block")):
        yield row | {"depth": row["layer"] / layers}


def _model_rows(task: MeasurementTask) -> Iterator[dict[str, Any]]:
    spec: Any = task.measurement
    for model in spec.models:
        row = {"model": model.name, "mixer": model.mixer.kind, "n_layers": 12, "state_shape": "32 x 64 x 128"}
        yield row | {"peak_lr": 1e-3, "parameters": 371_000_000}


def _systems(task: MeasurementTask) -> Iterator[dict[str, Any]]:
    spec: Any = task.measurement
    for model in spec.models:
        taxonomy = MIXERS[model.mixer.kind].taxonomy
        recurrence = "\n".join(taxonomy.recurrence)
        row = {"model": model.name, "mixer": model.mixer.kind, "system": taxonomy.system, "decay": taxonomy.decay}
        yield row | {"recurrence": recurrence, "state_shape": "4 x 16 x 16", "complex": True, "selective": True}


KEYS: dict[str, Callable[[Any], Keys]] = {
    "accuracy": _answers,
    "attack": lambda task: _replaced(task.measurement, target=range(10), example=range(SAMPLES)),
    "attention_map": _maps,
    "bc_correlation": lambda task: _product(layer=range(1, task.run.own_model.n_layers + 1)),
    "compute": lambda task: [{"stage": 1}],
    "context_loss": lambda task: _product(sequence=range(SAMPLES), context=_doubled(task.measurement.length)),
    "corruption": lambda task: _replaced(
        task.measurement, noise=("none", *task.measurement.noises), example=range(SAMPLES), draw=range(1)
    ),
    "cost": lambda task: (
        {"model": model.name, "mixer": model.mixer.kind} | row
        for model in task.measurement.models
        for row in _product(
            length=task.measurement.lengths,
            cost=("training_step", "training_memory", "decoding_step", "state"),
            repeat=range(1, 3),
        )
    ),
    "decay_range": lambda task: _product(
        sequence=range(SAMPLES), layer=range(3), threshold=np.linspace(0, 1, 21).tolist()
    ),
    "effective_remembrance": lambda task: (
        row | {"length": task.measurement.length}
        for row in _product(
            sequence=range(SAMPLES),
            t=[*np.linspace(0, task.measurement.length - 1, POINTS).astype(int).tolist()],
            distance=("total_variation", "jensen_shannon", "one_minus_cosine"),
        )
    ),
    "extrapolation_error": lambda task: _product(
        memory=("exponential", "power"),
        fit=("double", "exact", "longdouble", *(f"noise {noise:g}" for noise in task.measurement.noises), "descent"),
        window=task.measurement.windows,
        size=task.measurement.sizes,
        horizon=task.measurement.horizons,
        draw=range(1, 3),
    ),
    "influence": lambda task: _product(sequence=range(SAMPLES), distance=range(task.measurement.length)),
    "learning_curve": lambda task: ({"step": 10 * i, "tokens": 1000 * i} for i in range(1, POINTS + 1)),
    "position_loss": _bins,
    "length_class": lambda task: (
        {"context": task.measurement.context, "length": length, "sequences": SAMPLES, "class": kind}
        for length, kind in zip(
            task.measurement.lengths or (task.measurement.of.length,),
            itertools.cycle(("strong", "none", "not decided")),
            strict=False,
        )
    ),
    "memory_length": lambda task: _product(sequence=range(SAMPLES), layer=range(2), tokens=_doubled(256)),
    "state_retention": lambda task: _product(sequence=range(SAMPLES), layer=range(2)),
    "model_size": _model_rows,
    "overflow": lambda task: _product(
        format=task.measurement.formats,
        arithmetic=task.measurement.arithmetics,
        state=("carried", "stored"),
        inputs=("constant", "random"),
        halvings=task.measurement.halvings,
        share=task.measurement.shares,
        draw=range(1, 3),
    ),
    "passkey": lambda task: _product(
        length=task.measurement.lengths, depth=task.measurement.depths, trial=range(SAMPLES)
    ),
    "restart_loss": _restarts,
    "sample": lambda task: ({"place": place, "piece": "text", "text": "word " * 20} for place in range(5)),
    "smoothness": _depths,
    "state_statistics": _states,
    "taxonomy": _systems,
    "validation_loss": lambda task: _product(sequence=range(SAMPLES)),
}
