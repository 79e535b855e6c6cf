"""Tables and facts of invented models with a known failure position."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from ssm.base.bins import bin_edges
from ssm.diagnosis.readings import read
from ssm.diagnosis.result import Diagnosis, Facts, Tables
from ssm.diagnosis.verdict import verdict_of
from ssm.specs.diagnosis import ENOUGH
from ssm.specs.diagnosis_defaults import SEQUENCES, TOLERANCE
from ssm.specs.measurements.accuracy import Accuracy
from ssm.specs.measurements.effective_remembrance import EffectiveRemembrance
from ssm.specs.measurements.length_class import LengthClass
from ssm.specs.measurements.passkey import Passkey
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.measurements.state_statistics import StateStatistics

CONTEXT, LENGTH = 2048, 32768
Excess = Callable[[np.ndarray], np.ndarray]  # log2 of positions -> nats above the restarted model


@cache
def fails_from(onset: float, slope: float = 0.25) -> Excess:
    """An excess that rises by `slope` nats per octave and crosses log(TOLERANCE) at `onset`."""
    return lambda octave: np.maximum(0.0, np.log(TOLERANCE) + slope * (octave - np.log2(onset)))


def holds(octave: np.ndarray) -> np.ndarray:
    """A long history helps a little."""
    return np.full_like(octave, -0.01)


def bump(octave: np.ndarray) -> np.ndarray:
    """An excess above log(TOLERANCE) from 4,096 to 16,384 tokens alone, the most at 8,192."""
    return np.maximum(0.0, np.log(TOLERANCE) + 0.5 * (1 - abs(octave - 13)))


@cache
def losses(
    seed: int, excess: Excess = holds, sequences: int = 32, length: int = LENGTH, **noise: float
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """position_loss and restart_loss. Both share the noise of the text; each has less noise of its own.

    Args:
        noise: `apart` is the noise that they do not share, in nats per bin of 256 tokens. `spread` is the relative
            spread of the excess over sequences.
    """
    generator = np.random.default_rng(seed)
    edges = bin_edges(length)
    inner = np.linspace(edges[:-1], edges[1:] - 1, 33)  # (33, bins) positions inside
    true = np.where(inner >= CONTEXT, excess(np.log2(np.maximum(inner, 1))), 0.0).mean(0)  # (bins,)
    tokens = np.diff(edges)
    wobble = generator.normal(0, 0.2, (sequences, 1)) + generator.normal(0, 3.0, (sequences, len(true))) / tokens**0.5
    own = generator.normal(1, noise.get("spread", 0.3), (sequences, 1)) * true
    apart = generator.normal(0, noise.get("apart", 0.04), (sequences, len(true))) * (256 / tokens) ** 0.5
    apart[:, edges[1:] <= CONTEXT] = 0.0
    level = 2.5 + 1.5 / (1 + edges[1:]) ** 0.3
    restarted = level + wobble
    return (
        _table(restarted + own + apart, edges),
        _table(restarted, edges).filter(pl.col("position_from") >= CONTEXT // 2),
    )


def remembrance(value: float, sequences: int = 8, context: int = CONTEXT, length: int = LENGTH) -> pl.DataFrame:
    """Effective Remembrance of `value` with T tokens kept, and less with more tokens."""
    kept = bin_edges(length)[1:]
    curve = np.clip(value * (context / kept) ** 0.35, 0, 1) * (kept < length)
    spread = np.linspace(0.9, 1.1, sequences)
    return pl.DataFrame(
        {
            "sequence": np.repeat(np.arange(sequences), len(kept)),
            "t": np.tile(length - kept, sequences),
            "length": length,
            "distance": "total_variation",
            "value": np.minimum(1.0, np.outer(spread, curve)).flatten(),
        },
        schema=EffectiveRemembrance.table.columns,
    )


def states(growth: np.ndarray, sequences: int = 8) -> pl.DataFrame:
    """Heads with a std that grows by `growth` (layers, heads) beyond the context. Sequences differ by 5%."""
    generator = np.random.default_rng(3)
    positions = 2 ** np.arange(LENGTH.bit_length())
    octaves = np.log2(LENGTH / CONTEXT)
    power = np.clip(np.log2(positions / CONTEXT) / octaves, 0, None)
    rows = []
    for (layer, head), factor in np.ndenumerate(growth):
        with np.errstate(invalid="ignore"):
            curve = np.minimum(1.0, positions / 256) * (0.5 + 0.1 * head) * np.asarray(factor, float) ** power
        noise = generator.normal(1, 0.05, (sequences, 1))
        rows.append((layer, head, noise * curve * generator.normal(1, 0.01, (sequences, len(positions)))))
    rows.append((-1, -1, np.sqrt(sum(std**2 for _, _, std in rows))))
    frames = [
        pl.DataFrame(
            {
                "sequence": np.repeat(np.arange(sequences), len(positions)),
                "position": np.tile(positions, sequences),
                "layer": layer,
                "head": head,
                "norm": std.flatten(),
                "mean": 0.0,
                "std": std.flatten(),
            },
            schema=StateStatistics.table.columns,
        )
        for layer, head, std in rows
    ]
    return pl.concat(frames)


def passkeys(found: Callable[[int, float], int]) -> pl.DataFrame:
    """8 trials per cell, the first `found(length, depth)` of them right."""
    lengths = [CONTEXT // 2 * 2**i for i in range(int(np.log2(LENGTH / CONTEXT)) + 2)]
    rows = [
        {"length": n, "depth": depth, "trial": trial, "correct": trial < found(n, depth), "digits_right": 0}
        for n in lengths
        for depth in (0.0, 0.25, 0.5, 0.75, 1.0)
        for trial in range(8)
    ]
    return pl.DataFrame(rows, schema=Passkey.table.columns)


def needles(found: Callable[[int, float], int]) -> pl.DataFrame:
    """The same cells for the needle test: `found(length, depth)` answers are preferred."""
    cells = passkeys(found).select(
        "length", "correct", pl.col("depth").alias("difficulty"), pl.col("trial").alias("example")
    )
    given = {"group": "capital", "answer": 0, "tokens": 2, "forced_share": 0.5, "generated_share": 0.5}
    right = pl.col("correct")
    return cells.select(
        *(right.alias(name) for name in ("forced_all", "generated_all", "preferred")),
        (2.0 * right - 1).alias("margin"),
        pl.exclude("correct"),
        **{name: pl.lit(value, Accuracy.table.columns[name]) for name, value in given.items()},
    ).select(*Accuracy.table.columns)


def prompts() -> pl.DataFrame:
    """8 prompts of two tasks of RULER at two lengths. Only niah_single_1 has right answers."""
    right = {("niah_single_1", CONTEXT): 8, ("niah_single_1", 2 * CONTEXT): 2}
    rows = [
        {"length": n, "group": task, "example": i, "answer": 0, "difficulty": i / 8, "tokens": 3, "forced_share": 0.5}
        | {"forced_all": False, "generated_share": 0.5, "generated_all": i < right.get((task, n), 0)}
        for task in ("niah_single_1", "vt")
        for n in (CONTEXT, 2 * CONTEXT)
        for i in range(8)
    ]
    return pl.DataFrame(rows, schema={name: kind for name, kind in Accuracy.table.columns.items() if name in rows[0]})


def length_class(kind: str, generalizes: bool) -> pl.DataFrame:
    row = dict.fromkeys(LengthClass.table.columns)
    row |= {"class": kind, "extends_from": None if kind == "none" else CONTEXT, "generalizes": generalizes}
    return pl.DataFrame([row], schema=LengthClass.table.columns)


def facts(**changes: Any) -> Facts:
    given: dict[str, Any] = {
        "title": "mamba2-130m",
        "name": "state-spaces/mamba2-130m",
        "kind": "Mamba-2 of mamba_ssm",
        "parameters": 128_989_632,
        "vocab_size": 50277,
        "context": CONTEXT,
        "length": LENGTH,
        "sequences": ENOUGH,
        "windows": 16 * ENOUGH,
        "limit": SEQUENCES,
        "tokens_read": 6_291_456,
        "seconds": 373.2,
        "reading_seconds": 223.9,
        "tokens_per_second": 21_400.0,
        "state_bytes": 77_856_768,
        "peak_bytes": 3_221_225_472,
        "device": "cpu, 8 threads",
        "precision": "float32",
        "text": "books/*.txt",
        "text_sha256": "ab" * 32,
        "tokenizer": "bytes",
        "fingerprint": "0123456789abcdef",
        "seed": 1,
        "tolerance": TOLERANCE,
        "stopped_by": "decided",
        "can_extend": True,
        "missing": (),
    }
    return Facts(**given | changes)


@cache
def everything(seed: int = 0, excess: Excess = holds, factor: float = 4.0) -> Tables:
    """All tables: 7 of 576 heads grow by `factor`. Beyond the context, recall fails except for needles at the end."""
    growth = np.where(np.arange(576).reshape(24, 24) % 83 == 0, factor, 1.1)
    found = passkeys(lambda length, depth: 7 if length <= CONTEXT else 1)
    told = needles(lambda length, depth: 8 if length <= CONTEXT or depth == 1 else 2)
    known = {"state_statistics": states(growth), "effective_remembrance": remembrance(0.3)}
    return tables(seed, excess, **known, passkey=found, accuracy=told)


def tables(seed: int = 0, excess: Excess = holds, **others: Any) -> Tables:
    """The tables of losses, and the tables in `others`."""
    full, restarted = losses(seed, excess, others.pop("sequences", ENOUGH))
    kind = length_class("none", False) if excess is not holds else length_class("strong", True)
    return Tables(full, restarted, kind, **others)


def diagnosis(given: Tables, **changes: Any) -> Diagnosis:
    known = facts(sequences=given.position_loss["sequence"].n_unique(), **changes)
    readings = read(given, known)
    return Diagnosis(known, given, readings, verdict_of(readings, known))


def _table(values: np.ndarray, edges: np.ndarray) -> pl.DataFrame:
    sequences, bins = values.shape
    return pl.DataFrame(
        {
            "sequence": np.repeat(np.arange(sequences), bins),
            "position_from": np.tile(edges[:-1], sequences),
            "position_to": np.tile(edges[1:], sequences),
            "loss": values.flatten(),
        },
        schema=PositionLoss.table.columns,
    )
