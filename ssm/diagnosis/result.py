"""What a diagnosis is: the tables that were measured, the facts around them, the numbers read off them, the verdict.

Plain data, and its JSON. The numbers are computed in `readings`, the verdict in `verdict`, the page in `page`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from math import inf, nan
from pathlib import Path
from typing import Annotated, Any, TypeVar

import polars as pl
from pydantic import AfterValidator, BeforeValidator, TypeAdapter

from ssm.base import strict_parsing
from ssm.base.errors import TableError
from ssm.base.tables import SPELLED_BYTES
from ssm.specs import measurements

SCHEMAS = measurements.SCHEMAS | {SPELLED_BYTES.name: SPELLED_BYTES}
T = TypeVar("T")
# JSON has neither NaN nor infinity. A number that is none, and an end that an interval does not have, are null.
Number = Annotated[float, BeforeValidator(lambda value: nan if value is None else value)]
Low = Annotated[float, BeforeValidator(lambda value: -inf if value is None else value)]
High = Annotated[float, BeforeValidator(lambda value: inf if value is None else value)]


@dataclass(frozen=True)
class Interval:
    """A number and its interval; (NaN, -inf, inf) where it is none."""

    value: Number
    low: Low
    high: High


def _ascending(found: dict[int, T]) -> dict[int, T]:
    """A JSON file is sorted by its keys, which are texts there."""
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class HeadGrowth:
    """By what factor the standard deviation of one head's state grows past the context."""

    layer: int
    head: int
    growth: Interval


@dataclass(frozen=True)
class HeadMap:
    """The growth of every head, by layer; where a column stands for several heads, of the one that grows most."""

    together: int  # heads in a column
    layers: tuple[int, ...]
    growth: tuple[tuple[Number, ...], ...]  # (layers, columns); of a state that is no number at the end none either
    drifting: tuple[tuple[bool, ...], ...]  # (layers, columns): whether one of them drifts


@dataclass(frozen=True)
class Drift:
    """How many heads drift: whose state's standard deviation more than doubles past the context (lg figure 9)."""

    heads: int
    drifting: int
    top: tuple[HeadGrowth, ...]  # those that grow most, whether or not they drift
    map: HeadMap | None = None
    by_layer: Annotated[dict[int, int], AfterValidator(_ascending)] = field(default_factory=dict)  # layer -> drifting


@dataclass(frozen=True)
class Recall:
    """Passkeys or needles found at one length and depth."""

    length: int
    depth: float
    trials: int
    accuracy: Interval  # Wilson's interval


@dataclass(frozen=True)
class Memory:
    """How long the states remember, until 1/e is left of what they held: shares of all states."""

    recent_tokens: int
    recent: Interval  # forget within so many tokens
    kept_tokens: int
    kept: Interval  # still hold more than that after so many
    narrow: Interval  # whose decay ranges over less than half of what it could (bn figure 6)


@dataclass(frozen=True)
class EffectiveLength:
    """How far back text still lowers the loss (`ssm.diagnosis.effective_length`)."""

    at_least: int | None  # text more than so many tokens back surely does; None: of no length is that sure
    at_most: int | None  # from so many on, twice as many gain less than 1% of perplexity; None: not decided
    gains: Annotated[
        dict[int, Interval], AfterValidator(_ascending)
    ]  # by n: perplexity with n to 2n tokens read over that with 2n to 4n; together they hold with 95%


@dataclass(frozen=True)
class Solved:
    """Prompts of one of RULER's tasks at one length."""

    task: str
    length: int
    trials: int
    accuracy: Interval  # Wilson's interval


@dataclass(frozen=True)
class Readings:
    """The numbers of a diagnosis. Perplexities and ratios are plain numbers, not logarithms."""

    in_context: Interval  # perplexity at [T/2, T)
    far: Interval  # perplexity at the last quarter of the length
    ratios: Annotated[
        dict[int, Interval], AfterValidator(_ascending)
    ]  # by position, in tokens; together they hold with 95%
    failure: Interval | None  # position in tokens from which the paired ratio exceeds the tolerance; None: nowhere
    not_finite_from: int | None  # a bin begins here in which some loss is not a number; None: none does
    length_class: str  # strong, weak, none (ls Def. 2.1)
    extends_from: int | None
    generalizes: bool  # lg Def. 3.2
    drift: Drift | None  # None: not measured
    remembrance: Interval | None  # Effective Remembrance with the last T tokens kept, total variation
    passkey: tuple[Recall, ...]
    memory: Memory | None = None  # None: not measured
    needle: tuple[Recall, ...] = ()
    ruler: tuple[Solved, ...] = ()
    in_context_bits: Interval | None = None  # bits per byte of text at [T/2, T); None: the bytes were not counted
    far_bits: Interval | None = None  # the same at the last quarter of the length
    effective_length: EffectiveLength | None = None  # None: not measured


@dataclass(frozen=True)
class Verdict:
    """BREAKS, HOLDS or NOT_DECIDED of `ssm.diagnosis.verdict`, and what was found, in plain words."""

    outcome: str
    paragraph: str


@dataclass(frozen=True)
class Facts:
    """What was diagnosed, on what, and what it took."""

    title: str  # the model's short name
    name: str  # what the user called it
    kind: str  # in words
    parameters: int
    vocab_size: int
    context: int  # T, tokens
    length: int  # tokens
    sequences: int
    tokens_read: int
    seconds: float
    tokens_per_second: float
    state_bytes: int | None  # that one sequence carries on
    peak_bytes: int
    device: str
    precision: str
    text: str  # in words
    text_sha256: str
    fingerprint: str  # of the weights and their config
    seed: int
    tolerance: float
    stopped_by: str  # decided, budget, text or sequences
    can_extend: bool  # by training
    missing: tuple[str, ...]  # "what was not measured: why"
    can_be_scaled: bool = False  # by a repair that trains nothing (scale_a), where training cannot extend it
    looks: int = 1  # how often it was looked at most whether the verdict is decided: they share the level

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return _plain(Facts, self)

    def why_missing(self) -> dict[str, str]:
        """What was not measured -> why."""
        parts = [text.partition(": ") for text in self.missing]
        return {what: why for what, _, why in parts}


@dataclass(frozen=True)
class Tables:
    """The tables behind a diagnosis, in the schemas of their names in SCHEMAS; None: not measured."""

    position_loss: pl.DataFrame
    restart_loss: pl.DataFrame  # in every bin from T/2 on, the same sequences
    length_class: pl.DataFrame
    effective_remembrance: pl.DataFrame | None = None
    state_statistics: pl.DataFrame | None = None
    passkey: pl.DataFrame | None = None
    memory_length: pl.DataFrame | None = None
    decay_range: pl.DataFrame | None = None
    accuracy: pl.DataFrame | None = None  # on needles, and on RULER's tasks
    context_loss: pl.DataFrame | None = None
    spelled_bytes: pl.DataFrame | None = None  # in the bins of position_loss

    def present(self) -> dict[str, pl.DataFrame]:
        """Name of the schema -> table, of those that were measured."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: table for name, table in found.items() if table is not None}


@dataclass(frozen=True)
class Diagnosis:
    """Everything that its page shows."""

    facts: Facts
    tables: Tables
    readings: Readings
    verdict: Verdict


@dataclass(frozen=True)
class Extension:
    """What an extension adds to the page of its last diagnosis."""

    outcome: str  # a word or two: repaired
    reason: str  # a sentence without its full stop
    gained: bool
    training: tuple[tuple[str, str], ...] = ()  # name, value
    control: Diagnosis | None = None  # of the arm that was trained as long from zero states
    written: str | None = None  # where the model lies that was made: something was gained, or it is a candidate
    held_out: str = ""  # what is held out of training, and what that can decide
    links: tuple[tuple[str, str], ...] = ()  # text, address relative to the page


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Facts, readings and verdict as plain data; the tables are files of their own."""
    return {
        "facts": diagnosis.facts.as_json(),
        "readings": _plain(Readings, diagnosis.readings),
        "verdict": _plain(Verdict, diagnosis.verdict),
    }


def from_json(record: dict[str, Any], tables: Tables) -> Diagnosis:
    """The inverse of `as_json`.

    Raises:
        TableError: not the record of a diagnosis.
    """
    what = "not the record of a diagnosis"
    try:
        return Diagnosis(
            facts=strict_parsing.shaped(record["facts"], Facts, f"{what}: facts", TableError),
            tables=tables,
            readings=strict_parsing.shaped(record["readings"], Readings, f"{what}: readings", TableError),
            verdict=strict_parsing.shaped(record["verdict"], Verdict, f"{what}: verdict", TableError),
        )
    except KeyError as error:
        raise TableError(f"{what}: it has no {error}") from error


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a record that `as_json` made.

    Raises:
        TableError: it is not there, or no JSON.
    """
    record = strict_parsing.read_json(path, TableError, "record of a diagnosis")
    if not isinstance(record, dict):
        raise TableError(f"{path}: not the record of a diagnosis")
    return record


def _plain(kind: Any, value: Any) -> dict[str, Any]:
    return json.loads(TypeAdapter(kind).dump_json(value))
