"""The data of a diagnosis, and its JSON: measured tables, facts about the measurement, computed numbers, verdict.

`readings` computes the numbers, `verdict` the verdict, and `page` the page.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from math import inf, nan
from pathlib import Path
from typing import Annotated, Any, TypeVar

import polars as pl
from pydantic import AfterValidator, BeforeValidator, TypeAdapter

from ssm.base.errors import TableError
from ssm.base.strict_parsing import read_json, shaped
from ssm.base.tables import SPELLED_BYTES
from ssm.specs import measurements

SCHEMAS = measurements.SCHEMAS | {SPELLED_BYTES.name: SPELLED_BYTES}
SPENT, OUT_OF_MEMORY = "the budget was spent", "out of memory"  # why a measurement is missing
T = TypeVar("T")
# JSON has neither NaN nor infinity. Both are written as null, and each of these types reads null as its own value.
Number = Annotated[float, BeforeValidator(lambda value: nan if value is None else value)]
Low = Annotated[float, BeforeValidator(lambda value: -inf if value is None else value)]
High = Annotated[float, BeforeValidator(lambda value: inf if value is None else value)]


@dataclass(frozen=True)
class Interval:
    """A number and its interval. An unknown number is (NaN, -inf, inf)."""

    value: Number
    low: Low
    high: High


def _ascending(values: dict[int, T]) -> dict[int, T]:
    """Sort by number: the keys of a JSON file are sorted as text."""
    return dict(sorted(values.items()))


@dataclass(frozen=True)
class HeadGrowth:
    """The factor by which the standard deviation of one head's state grows beyond the context."""

    layer: int
    head: int
    growth: Interval


@dataclass(frozen=True)
class HeadMap:
    """The growth of every head, by layer. A column of several heads shows the one that grows most."""

    together: int  # heads in a column
    layers: tuple[int, ...]
    growth: tuple[tuple[Number, ...], ...]  # (layers, columns); NaN: a state is lost at the end, or none has a growth
    drifting: tuple[tuple[bool, ...], ...]  # (layers, columns): whether a head of the column drifts


@dataclass(frozen=True)
class Drift:
    """Drifting heads: the standard deviation of their state more than doubles beyond the context (lg figure 9)."""

    heads: int
    drifting: int
    top: tuple[HeadGrowth, ...]  # the heads that grow most, drifting or not
    map: HeadMap | None = None
    by_layer: Annotated[dict[int, int], AfterValidator(_ascending)] = field(default_factory=dict)  # layer -> drifting
    unmeasured: int = 0  # heads without a growth, because the std of their state at T is zero or not a number

    @property
    def measured(self) -> int:
        """Heads that have a growth."""
        return self.heads - self.unmeasured


@dataclass(frozen=True)
class Recall:
    """Accuracy of the passkey test or the needle test at one length and depth."""

    length: int
    depth: float
    trials: int
    accuracy: Interval  # Wilson's interval


@dataclass(frozen=True)
class Memory:
    """How long the states remember, as shares of all states. A state remembers until 1/e of its content is left."""

    recent_tokens: int
    recent: Interval  # states that forget within `recent_tokens`
    kept_tokens: int
    kept: Interval  # states that still remember after `kept_tokens`
    narrow: Interval  # states with a decay that uses less than half of its possible range (bn figure 6)


@dataclass(frozen=True)
class EffectiveLength:
    """How far back text still lowers the loss (`ssm.diagnosis.readings.effective_length`)."""

    at_least: int | None  # text more than this many tokens back certainly lowers the loss; None: not decided
    at_most: int | None  # from this many tokens on, twice as many gain less than 1% of perplexity; None: not decided
    # n -> perplexity with n to 2n tokens read, divided by perplexity with 2n to 4n; the intervals hold jointly with 95%
    gains: Annotated[dict[int, Interval], AfterValidator(_ascending)]


@dataclass(frozen=True)
class Solved:
    """Accuracy of one of RULER's tasks at one length."""

    task: str
    length: int
    trials: int
    accuracy: Interval  # Wilson's interval


@dataclass(frozen=True)
class Readings:
    """The numbers of a diagnosis. Perplexities and ratios are plain numbers, not logarithms. None: not measured."""

    in_context: Interval  # perplexity at [T/2, T)
    far: Interval  # perplexity on the last quarter of the length
    ratios: Annotated[dict[int, Interval], AfterValidator(_ascending)]  # by position, tokens; jointly at 95%
    failure: Interval | None  # position in tokens from which the paired ratio exceeds the tolerance; None: nowhere
    not_finite_from: int | None  # start of the first bin with a loss that is not a number; None: there is none
    length_class: str  # strong, weak, none or not decided (ls Def. 2.1)
    extends_from: int | None
    generalizes: bool  # lg Def. 3.2
    drift: Drift | None
    remembrance: Interval | None  # Effective Remembrance if the last T tokens are kept, total variation
    passkey: tuple[Recall, ...]
    memory: Memory | None = None
    needle: tuple[Recall, ...] = ()
    ruler: tuple[Solved, ...] = ()
    in_context_bits: Interval | None = None  # bits per byte of text at [T/2, T)
    far_bits: Interval | None = None  # bits per byte on the last quarter of the length
    effective_length: EffectiveLength | None = None


@dataclass(frozen=True)
class Verdict:
    """The outcome and its explanation."""

    outcome: str  # BREAKS, HOLDS or NOT_DECIDED of `ssm.diagnosis.outcome`
    paragraph: str


@dataclass(frozen=True)
class Facts:
    """The model, the text and the settings of a diagnosis, and its cost."""

    title: str  # the model's short name
    name: str  # as the user gave it
    kind: str  # description of the architecture
    parameters: int
    vocab_size: int
    context: int  # T, tokens
    length: int  # tokens
    sequences: int
    windows: int  # that the text has, read or not
    limit: int  # of windows: no more are read
    tokens_read: int
    seconds: float
    reading_seconds: float  # of `seconds`, for the verdict alone
    tokens_per_second: float
    state_bytes: int | None  # of one sequence
    peak_bytes: int | None  # of memory in this diagnosis; None: the process used more before
    device: str
    precision: str
    text: str  # names of the files
    text_sha256: str
    tokenizer: str  # its name, and the SHA-256 of its file
    fingerprint: str  # of the weights and their config
    seed: int
    tolerance: float
    stopped_by: str  # decided, budget, text or sequences
    can_extend: bool  # whether `ssm extend` can train it
    missing: tuple[str, ...]  # "what was not measured: why"
    can_be_scaled: bool = False  # whether scale_a, which trains nothing, can repair a model that cannot be trained
    looks: int = 1  # at most how often the verdict was checked: all checks share the level of the intervals
    longest: int | None = None  # where the model's positions end or change, in tokens; None: nowhere
    all_windows: bool = False  # whether reading did not end when the verdict was decided
    document: int | None = None  # half of the text is in documents of at most this many tokens; None: not recorded

    def as_json(self) -> dict[str, Any]:
        return _plain(Facts, self)

    def why_missing(self) -> dict[str, str]:
        """What was not measured -> the reason."""
        parts = [text.partition(": ") for text in self.missing]
        return {what: why for what, _, why in parts}


@dataclass(frozen=True)
class Tables:
    """The tables of a diagnosis. SCHEMAS has a schema for each name. None: not measured."""

    position_loss: pl.DataFrame
    restart_loss: pl.DataFrame  # all bins from T/2 on, the same sequences
    length_class: pl.DataFrame
    effective_remembrance: pl.DataFrame | None = None
    state_statistics: pl.DataFrame | None = None
    passkey: pl.DataFrame | None = None
    memory_length: pl.DataFrame | None = None
    decay_range: pl.DataFrame | None = None
    accuracy: pl.DataFrame | None = None  # of the needle test, and of RULER's tasks
    context_loss: pl.DataFrame | None = None
    spelled_bytes: pl.DataFrame | None = None  # in the bins of position_loss

    def present(self) -> dict[str, pl.DataFrame]:
        """The measured tables by name."""
        tables = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: table for name, table in tables.items() if table is not None}


@dataclass(frozen=True)
class Diagnosis:
    """One diagnosis: everything that its page shows."""

    facts: Facts
    tables: Tables
    readings: Readings
    verdict: Verdict


@dataclass(frozen=True)
class Extension:
    """What an extension adds to the page of its last diagnosis."""

    outcome: str  # for example "repaired"
    reason: str  # a sentence without the period at its end
    gained: bool
    training: tuple[tuple[str, str], ...] = ()  # name, value
    control: Diagnosis | None = None  # of the control arm, with as many steps from zero states
    written: str | None = None  # path of the new model, or of the candidate if nothing was gained
    held_out: str = ""  # which text is held out of training, and what it can decide
    links: tuple[tuple[str, str], ...] = ()  # text, address relative to the page


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Facts, readings and verdict as plain data. The tables are separate files."""
    return {
        "facts": diagnosis.facts.as_json(),
        "readings": _plain(Readings, diagnosis.readings),
        "verdict": _plain(Verdict, diagnosis.verdict),
    }


def from_json(record: dict[str, Any], tables: Tables) -> Diagnosis:
    """The inverse of `as_json`.

    Raises:
        TableError: `record` is not the record of a diagnosis.
    """
    what = "not the record of a diagnosis"
    try:
        return Diagnosis(
            facts=shaped(record["facts"], Facts, f"{what}: facts", TableError),
            tables=tables,
            readings=shaped(record["readings"], Readings, f"{what}: readings", TableError),
            verdict=shaped(record["verdict"], Verdict, f"{what}: verdict", TableError),
        )
    except KeyError as error:
        raise TableError(f"{what}: it has no {error}") from error


def read_diagnosis_record(path: str | Path) -> dict[str, Any]:
    """Read a record that `as_json` made.

    Raises:
        TableError: the file does not exist, or is not the JSON of a record.
    """
    record = read_json(path, TableError, "record of a diagnosis")
    if not isinstance(record, dict):
        raise TableError(f"{path}: not the record of a diagnosis")
    return record


def _plain(kind: Any, value: Any) -> dict[str, Any]:
    return json.loads(TypeAdapter(kind).dump_json(value))
