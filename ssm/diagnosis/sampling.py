"""Read a model until its verdict is decided, the text is used up, or the budget is spent."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isnan

import polars as pl
import torch

from ssm.base.bins import bin_edges
from ssm.base.tables import SPELLED_BYTES
from ssm.data.own_text import disjoint_windows
from ssm.data.spelled import spelled_bytes
from ssm.data.store import TokenStore
from ssm.diagnosis.outcome import BREAKS, HOLDS, outcome_of
from ssm.diagnosis.readings import failure_position, ratios
from ssm.diagnosis.recall import needles, passkeys, ruler
from ssm.diagnosis.result import Interval, Tables
from ssm.diagnosis.session import FixedWindowsContext, Session
from ssm.evaluation.by_position import binned_table
from ssm.evaluation.context_loss import context_loss
from ssm.evaluation.decay_range import decay_range
from ssm.evaluation.effective_remembrance import effective_remembrance
from ssm.evaluation.length_class import length_class
from ssm.evaluation.memory_length import memory_length
from ssm.evaluation.position_loss import position_loss
from ssm.evaluation.restart_loss import restart_loss
from ssm.evaluation.state_statistics import state_statistics
from ssm.evaluation.stream import PROBED, segments
from ssm.models.readable import Readable
from ssm.specs.diagnosis import ENOUGH, LEAST, RESERVED, DiagnosisSpec
from ssm.specs.measurements.context_loss import ContextLoss
from ssm.specs.measurements.decay_range import DecayRange
from ssm.specs.measurements.effective_remembrance import EffectiveRemembrance
from ssm.specs.measurements.length_class import LengthClass
from ssm.specs.measurements.memory_length import MemoryLength
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.measurements.restart_loss import RestartLoss
from ssm.specs.measurements.state_statistics import StateStatistics

FIRST = (LEAST, 16)  # numbers of windows after which only the time is checked
PRECISE = 1.4  # high / low of the interval of the failure position: reading stops below this factor
FEW = 8  # windows for the state, and for Effective Remembrance
PAIRED = 16  # windows for the loss by context
SHORTEST = 64  # the shortest of these contexts is T / SHORTEST


@dataclass
class Sample:
    """The tables of a diagnosis, and the cost."""

    tables: Tables
    sequences: int
    windows: int  # that the text has
    tokens: int  # tokens that the model has read
    looks: int  # how often the reading could have ended
    stopped_by: str  # decided, budget, text or sequences
    missing: tuple[str, ...]  # "what was not measured: why"
    seconds: float
    reading_seconds: float  # for the verdict alone
    tokens_per_second: float
    state_bytes: int | None  # of one sequence after T tokens
    peak_bytes: int | None  # of memory; None: the process used more before


def sample(
    model: Readable,
    store: TokenStore,
    spec: DiagnosisSpec,
    device: torch.device,
    title: str = "diagnose",
    all_windows: bool = False,
) -> Sample:
    """All measurements of a diagnosis of `model` (in evaluation mode, on `device`).

    Windows of the held-out text of `store` do not overlap. Their number doubles until the verdict is decided. The first
    LEAST windows are read however long it takes.

    Args:
        all_windows: go on when the verdict is decided, until the text, the time or `spec.sequences` ends.

    Raises:
        DataError: the text is too short.
    """
    windows = disjoint_windows(store.held_out, spec.length, spec.seed, at_least=LEAST, shortest=2 * spec.context)
    ctx = FixedWindowsContext(model, spec.seed, store, device, title, given=windows)
    with computing_in(spec, device):
        return _Sampler(ctx, spec, len(windows.positions), all_windows).run()


def rounds(most: int) -> list[int]:
    """Numbers of windows at which the verdict is checked: ENOUGH, twice as many, and so on up to `most`."""
    counts = [min(ENOUGH, most)]
    while counts[-1] < most:
        counts.append(min(2 * counts[-1], most))
    return counts


class _Sampler:
    """The measurements of one diagnosis of a text with `windows` windows."""

    def __init__(self, ctx: FixedWindowsContext, spec: DiagnosisSpec, windows: int, all_windows: bool):
        self.ctx, self.spec, self.windows, self.all_windows = ctx, spec, windows, all_windows
        self.session = Session(ctx, spec)

    def run(self) -> Sample:
        looks, session, device = rounds(min(self.spec.sequences, self.windows)), self.session, self.ctx.device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        before = _peak_bytes(device)
        losses, restarts, sequences, stopped_by = self._losses(looks)
        reading_seconds = session.spent()
        few = min(FEW, sequences)
        tables = Tables(
            position_loss=losses,
            restart_loss=restarts,
            length_class=length_class(self._class_spec(sequences), losses),
            state_statistics=self._states(few),
            effective_remembrance=self._remembrance(few),
            **self._decays(few),
            context_loss=self._contexts(min(PAIRED, sequences)),
            passkey=passkeys(session),
            accuracy=_together(needles(session), ruler(session)),
            spelled_bytes=self._spelled(sequences),
        )
        state_bytes, peak = self._state_bytes(), _peak_bytes(device)
        return Sample(
            tables=tables,
            sequences=sequences,
            windows=self.windows,
            tokens=session.tokens,
            looks=len(looks),
            stopped_by=stopped_by,
            missing=tuple(session.missing),
            seconds=round(session.spent(), 3),
            reading_seconds=round(reading_seconds, 3),
            tokens_per_second=round(session.rate, 1),
            state_bytes=state_bytes,
            peak_bytes=peak if peak > before else None,
        )

    def _losses(self, looks: list[int]) -> tuple[pl.DataFrame, pl.DataFrame, int, str]:
        """Tables of the loss with the full history and after restarts, the number of windows, and why it is not higher.

        Args:
            looks: numbers of windows at which the verdict is checked.
        """
        spec, session, read = self.spec, self.session, 0
        losses: list[pl.DataFrame] = []
        restarts: list[pl.DataFrame] = []
        ends = [*(count for count in FIRST if count < looks[0]), *looks]
        for until, then in zip(ends, [*ends[1:], None], strict=True):
            count, before = until - read, session.spent()
            ctx = replace(self.ctx.past(read), title=f"{self.ctx.title}: windows {read + 1} to {until}")
            full = position_loss(PositionLoss(length=spec.length, sequences=count), ctx)
            session.rate = count * spec.length / (session.spent() - before)
            restart = RestartLoss(length=spec.length, sequences=count, context=spec.context, everywhere=True)
            restarted = restart_loss(restart, ctx)
            losses.append(_numbered_from(read, full))
            restarts.append(_numbered_from(read, restarted))
            session.tokens += 3 * count * spec.length  # restarts read every target beyond the context twice more
            read = until
            tables = pl.concat(losses), pl.concat(restarts)
            if until in looks and not self.all_windows and self._decided(*tables, len(looks)):
                return *tables, read, "decided"
            if then is None:
                break
            took = (session.spent() - before) * (then - until) / count
            if session.spent() + took > (1 - RESERVED) * spec.budget_seconds:
                return *tables, read, "budget"
        return *tables, read, "text" if self.windows <= spec.sequences else "sequences"

    def _decided(self, losses: pl.DataFrame, restarts: pl.DataFrame, looks: int) -> bool:
        """Whether more windows would change little. All looks share the level of the intervals."""
        tolerance, context = self.spec.tolerance, self.spec.context
        failure = failure_position(losses, restarts, tolerance)
        windows = losses["sequence"].n_unique()
        outcome = outcome_of(ratios(losses, restarts, context, looks), tolerance, windows, failure)
        return outcome == HOLDS or (outcome == BREAKS and _precise(failure))

    def _states(self, sequences: int) -> pl.DataFrame | None:
        spec = StateStatistics(length=self.spec.length, sequences=sequences)
        tokens = sequences * self.spec.length
        return self.session.measured("state statistics", tokens, lambda: state_statistics(spec, self.ctx))

    def _remembrance(self, sequences: int) -> pl.DataFrame | None:
        spec = EffectiveRemembrance(length=self.spec.length, sequences=sequences)
        tokens = int(spec.tokens)
        return self.session.measured("Effective Remembrance", tokens, lambda: effective_remembrance(spec, self.ctx))

    def _decays(self, sequences: int) -> dict[str, pl.DataFrame]:
        """Tables of the memory of states and of the range of their decays, on windows of T tokens."""
        context = self.spec.context

        def measure() -> dict[str, pl.DataFrame]:
            return {
                "memory_length": memory_length(MemoryLength(length=context, sequences=sequences), self.ctx),
                "decay_range": decay_range(DecayRange(length=context, sequences=sequences), self.ctx),
            }

        return self.session.measured("decays", 2 * sequences * context, measure) or {}

    def _contexts(self, sequences: int) -> pl.DataFrame | None:
        """The loss on the same targets, by the number of tokens read before them."""
        spec = ContextLoss(length=self.spec.length, sequences=sequences, shortest=max(1, self.spec.context // SHORTEST))
        tokens = sequences * spec.tokens + PROBED * len(spec.contexts)  # the latter to measure the size of a state
        return self.session.measured("effective length", tokens, lambda: context_loss(spec, self.ctx))

    def _state_bytes(self) -> int | None:
        """Size of the state of one sequence after T tokens."""
        context = self.spec.context

        def measure() -> int:
            read = segments(self.ctx, self.ctx.windows(1, context, 0), context)
            return [segment.state.nbytes for segment in read][-1]

        return self.session.measured("size of the state", context, measure)

    def _spelled(self, sequences: int) -> pl.DataFrame:
        """The bytes of text that the targets of each window and bin spell."""
        windows, edges = self.ctx.windows(sequences, self.spec.length, 0), bin_edges(self.spec.length)
        sizes = spelled_bytes(windows.split, self.ctx.store.tokenizer(), windows.positions, edges)  # (windows, bins)
        return binned_table(torch.from_numpy(sizes).double(), edges[:-1], edges[1:], SPELLED_BYTES)

    def _class_spec(self, sequences: int) -> LengthClass:
        of = PositionLoss(length=self.spec.length, sequences=sequences)
        return LengthClass(of=of, context=self.spec.context)


def _together(*tables: pl.DataFrame | None) -> pl.DataFrame | None:
    """All tables that are not None in one. A column that a table lacks is null."""
    measured = [table for table in tables if table is not None]
    return pl.concat(measured, how="diagonal") if measured else None


def _precise(failure: Interval | None) -> bool:
    """Whether the failure position is precise enough. True if it cannot become more precise."""
    return failure is None or isnan(failure.value) or failure.high <= PRECISE * failure.low


def _numbered_from(first: int, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("sequence") + first)


@contextmanager
def computing_in(spec: DiagnosisSpec, device: torch.device) -> Iterator[None]:
    with torch.autocast(device.type, torch.bfloat16, enabled=spec.precision == "bfloat16"):
        yield


def _peak_bytes(device: torch.device) -> int:
    """The peak memory use of the GPU since its last reset, or of this process since its start."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # KiB on Linux
