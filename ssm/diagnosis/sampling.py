"""Reading a model until its verdict is decided, the text is used up, or the budget is spent."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isnan

import polars as pl
import torch

from ssm.base.errors import UserError
from ssm.data.batches import HeldOutWindows
from ssm.data.own_text import disjoint_windows
from ssm.data.store import TokenStore
from ssm.data.tasks.needle import Needle
from ssm.diagnosis.readings import failure_position, ratios
from ssm.diagnosis.result import Interval, Tables
from ssm.diagnosis.verdict import BREAKS, HOLDS, outcome_of
from ssm.evaluation.accuracy import accuracy
from ssm.evaluation.bins import octaves
from ssm.evaluation.decay_range import decay_range
from ssm.evaluation.effective_remembrance import effective_remembrance
from ssm.evaluation.length_class import length_class
from ssm.evaluation.memory_length import memory_length
from ssm.evaluation.passkey import passkey, passkey_pieces
from ssm.evaluation.position_loss import position_loss
from ssm.evaluation.restart_loss import restart_loss
from ssm.evaluation.state_statistics import state_statistics
from ssm.evaluation.subject import Subject
from ssm.models.readable import Readable
from ssm.specs.diagnosis import ENOUGH, LEAST, DiagnosisSpec
from ssm.specs.measurements import (
    Accuracy,
    DecayRange,
    EffectiveRemembrance,
    LengthClass,
    MemoryLength,
    Passkey,
    PositionLoss,
    RestartLoss,
    StateStatistics,
)
from ssm.specs.tasks.needle import NeedleTask

FIRST = (LEAST, 16)  # windows after which only the time is looked at
PRECISE = 1.4  # the ends of the interval of where it begins to fail lie within this factor
FEW = 8  # windows for the state, and for Effective Remembrance
TRIALS = 8  # passkeys, and needles, at one length and depth
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
RESERVED = 0.4  # of the budget is kept for what explains a verdict
REMEMBRANCE_PASSES = 7.5  # over a window's length: its bins end 6.5 times the length, and the whole window


@dataclass
class Sample:
    """What was read, and what it took."""

    tables: Tables
    sequences: int
    tokens: int  # that went through the model
    looks: int  # at which the reading could have ended
    stopped_by: str  # decided, budget, text or sequences
    missing: tuple[str, ...]  # what was not measured, and why
    seconds: float
    tokens_per_second: float  # of the model reading on
    peak_bytes: int


@dataclass(frozen=True)
class Reader(Subject):
    """Reads given windows, whichever a measurement would choose."""

    given: HeldOutWindows = field(kw_only=True)

    def windows(self, sequences: int, length: int, seed: int) -> HeldOutWindows:
        """The first of the given windows, up to `length`."""
        return replace(self.given, positions=self.given.positions[:sequences], length=length)

    def past(self, first: int) -> Reader:
        """From window number `first` on."""
        return replace(self, given=replace(self.given, positions=self.given.positions[first:]))


def sample(
    model: Readable, store: TokenStore, spec: DiagnosisSpec, device: torch.device, title: str = "diagnose"
) -> Sample:
    """Everything that a diagnosis of `model` (in evaluation mode, on `device`) rests on.

    Windows lie apart in the held-out text of `store`. Their number doubles until the verdict is decided.

    Raises:
        DataError: the text is too short.
    """
    windows = disjoint_windows(store.held_out, spec.length, spec.seed, at_least=LEAST, shortest=2 * spec.context)
    reader = Reader(model, spec.seed, store, device, title, given=windows)
    with computing_in(spec, device):
        return _Sampler(reader, spec, min(spec.sequences, len(windows.positions))).run()


def rounds(most: int) -> list[int]:
    """Windows read after each round: ENOUGH, twice as many, and so on up to `most`."""
    found = [min(ENOUGH, most)]
    while found[-1] < most:
        found.append(min(2 * found[-1], most))
    return found


class _Sampler:
    """One diagnosis under way."""

    def __init__(self, reader: Reader, spec: DiagnosisSpec, most: int):
        self.reader, self.spec, self.most = reader, spec, most
        self.started = time.monotonic()
        self.tokens = 0
        self.rate = 0.0  # tokens a second
        self.missing: list[str] = []

    def run(self) -> Sample:
        looks = rounds(self.most)
        losses, restarts, sequences, stopped_by = self._losses(looks)
        few = min(FEW, sequences)
        tables = Tables(
            position_loss=losses,
            restart_loss=restarts,
            length_class=length_class(self._class_spec(sequences), losses),
            state_statistics=self._states(few),
            effective_remembrance=self._remembrance(few),
            **self._decays(few),
            passkey=self._passkey(),
            accuracy=self._needles(),
        )
        return Sample(
            tables=tables,
            sequences=sequences,
            tokens=self.tokens,
            looks=len(looks),
            stopped_by=stopped_by,
            missing=tuple(self.missing),
            seconds=round(time.monotonic() - self.started, 3),
            tokens_per_second=round(self.rate, 1),
            peak_bytes=_peak_bytes(self.reader.device),
        )

    def _losses(self, looks: list[int]) -> tuple[pl.DataFrame, pl.DataFrame, int, str]:
        """The loss with the full history and of the restarted model, by window; how many; why no more."""
        spec, read = self.spec, 0
        losses: list[pl.DataFrame] = []
        restarts: list[pl.DataFrame] = []
        ends = [*(count for count in FIRST if count < looks[0]), *looks]
        for until, then in zip(ends, [*ends[1:], None], strict=True):
            count, before = until - read, time.monotonic()
            reader = replace(self.reader.past(read), title=f"{self.reader.title}: windows {read + 1} to {until}")
            full = position_loss(PositionLoss(length=spec.length, sequences=count), reader)
            self.rate = count * spec.length / (time.monotonic() - before)
            restart = RestartLoss(length=spec.length, sequences=count, context=spec.context, everywhere=True)
            restarted = restart_loss(restart, reader)
            losses.append(_numbered_from(read, full))
            restarts.append(_numbered_from(read, restarted))
            self.tokens += 3 * count * spec.length  # every target beyond the context is read twice again
            read = until
            found = pl.concat(losses), pl.concat(restarts)
            if until in looks and self._decided(*found, len(looks)):
                return *found, read, "decided"
            if then is None:
                break
            took = (time.monotonic() - before) * (then - until) / count
            share = 1 - RESERVED if until in looks else 1.0
            if self._spent() + took > share * spec.budget_seconds:
                return *found, read, "budget"
        return *found, read, "text" if self.most < spec.sequences else "sequences"

    def _decided(self, losses: pl.DataFrame, restarts: pl.DataFrame, looks: int) -> bool:
        """Whether more windows would change little. Whoever looks more than once shares the level among the looks."""
        tolerance, context = self.spec.tolerance, self.spec.context
        failure = failure_position(losses, restarts, tolerance)
        windows = losses["sequence"].n_unique()
        outcome = outcome_of(ratios(losses, restarts, context, looks), tolerance, windows, failure)
        return outcome == HOLDS or (outcome == BREAKS and _precise(failure))

    def _states(self, sequences: int) -> pl.DataFrame | None:
        spec = StateStatistics(length=self.spec.length, sequences=sequences)
        if not self._affordable("state statistics", sequences * self.spec.length):
            return None
        try:
            return state_statistics(spec, self.reader)
        except UserError as error:
            self.missing.append(f"state statistics: {error}")
            return None

    def _remembrance(self, sequences: int) -> pl.DataFrame | None:
        spec = EffectiveRemembrance(length=self.spec.length, sequences=sequences)
        if not self._affordable("Effective Remembrance", int(REMEMBRANCE_PASSES * sequences * self.spec.length)):
            return None
        return effective_remembrance(spec, self.reader)

    def _decays(self, sequences: int) -> dict[str, pl.DataFrame]:
        """How long states remember and how far their decays range, over windows of one context."""
        context = self.spec.context
        if not self._affordable("decays", 2 * sequences * context):
            return {}
        try:
            return {
                "memory_length": memory_length(MemoryLength(length=context, sequences=sequences), self.reader),
                "decay_range": decay_range(DecayRange(length=context, sequences=sequences), self.reader),
            }
        except UserError as error:
            self.missing.append(f"decays: {error}")
            return {}

    def _passkey(self) -> pl.DataFrame | None:
        if not self.spec.passkey:
            self.missing.append("passkey: not asked for")
            return None
        context = self.spec.context
        asked = Passkey(
            lengths=(context // 2, *(k * context for k in octaves(context, self.spec.length))),
            depths=DEPTHS,
            trials=TRIALS,
        )
        try:
            pieces = passkey_pieces(asked, self.reader.store.tokenizer(), self.reader.seed)
        except UserError as error:
            self.missing.append(f"passkey: {error}")
            return None
        lengths = tuple(length for length in asked.lengths if length >= pieces.shortest)
        if not lengths:
            self.missing.append(f"passkey: its prompt alone takes {pieces.shortest} tokens")
            return None
        if not self._affordable("passkey", TRIALS * len(DEPTHS) * sum(lengths)):
            return None
        return passkey(asked.model_copy(update={"lengths": lengths}), self.reader)

    def _needles(self) -> pl.DataFrame | None:
        """The same statements at every length and depth, in the text of the diagnosis."""
        if not self.spec.passkey:
            self.missing.append("needles: not asked for")
            return None
        store, context = self.reader.store, self.spec.context
        lengths = (context // 2, *(k * context for k in octaves(context, self.spec.length)))
        try:
            tasks = [_needle_task(store, depth, max(lengths)) for depth in DEPTHS]
            needle = Needle(tasks[0], "test", 0, store)
        except UserError as error:
            self.missing.append(f"needles: {error}")
            return None
        lengths = tuple(length for length in lengths if length >= needle.shortest)
        behind = tasks[0].answering(needle.room)
        if not self._affordable("needles", TRIALS * len(DEPTHS) * sum(length + behind for length in lengths)):
            return None
        asked = [Accuracy(task=task, lengths=lengths, examples=TRIALS) for task in tasks]
        try:
            return pl.concat(accuracy(one, self.reader) for one in asked)
        except UserError as error:  # such as a text in which no sentence ends
            self.missing.append(f"needles: {error}")
            return None

    def _class_spec(self, sequences: int) -> LengthClass:
        of = PositionLoss(length=self.spec.length, sequences=sequences)
        return LengthClass(of=of, context=self.spec.context)

    def _affordable(self, what: str, tokens: int) -> bool:
        """Whether so many more tokens fit into the budget; they are counted as read if they do."""
        if self._spent() + tokens / self.rate > self.spec.budget_seconds:
            self.missing.append(f"{what}: the budget was spent")
            return False
        self.tokens += tokens
        return True

    def _spent(self) -> float:
        return time.monotonic() - self.started


def _needle_task(store: TokenStore, depth: float, length: int) -> NeedleTask:
    """Needles at one depth in a store's own text, of that length where no other is asked for."""
    text = store.spec.text
    assert text is not None
    mix = ({"length": length, "depths": (depth, depth)},)
    content = {"name": "needle", "corpus": text.corpus, "tokenizer": text.tokenizer, "mix": mix}
    return NeedleTask.parse(content, "needles")


def _precise(failure: Interval | None) -> bool:
    """Whether it is known well enough where a model begins to fail; also where that can never be known."""
    return failure is None or isnan(failure.value) or failure.high <= PRECISE * failure.low


def _numbered_from(first: int, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("sequence") + first)


@contextmanager
def computing_in(spec: DiagnosisSpec, device: torch.device) -> Iterator[None]:
    with torch.autocast(device.type, torch.bfloat16, enabled=spec.precision == "bfloat16"):
        yield


def _peak_bytes(device: torch.device) -> int:
    """The most memory that was in use: of the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # KiB on Linux
