"""An estimate with its interval: over seeds if there are several, over sequences if there is one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ssm.base.lazy import special
from ssm.base.seeds import numpy_generator
from ssm.claims.bounded_mean import bounded_interval
from ssm.claims.method import BOOTSTRAP, GAFFKE, SEEDS, SEQUENCES, STUDENT, Method
from ssm.claims.tails import Tails, bootstrap_tails, bounded_tails, exponential_tails, student_tails

LEVEL = 0.95
DRAWS = 2000  # bootstrap resamples
OUTSIDE = 1e-6  # of a limit: a number that exceeds it by less is rounded
NOTHING = np.empty(0)


# Seed -> its number; or several, such as steps of a curve; or the named parts of which the number is made, on scales of
# their own
BySeed = Mapping[int, float | tuple[float, ...] | Mapping[str, float]]


class UndecidableError(Exception):
    """The tables cannot decide this claim at this scale. The message becomes the reason of the verdict.

    Attributes:
        by_seed: the number of each seed, if the seeds have numbers.
    """

    def __init__(self, reason: str, by_seed: BySeed | None = None):
        super().__init__(reason)
        self.by_seed = by_seed or {}


@dataclass(frozen=True)
class Estimate:
    """A quantity with its 95% interval. Ratios are given as ratios, not as logarithms."""

    value: float
    low: float
    high: float
    interval: Method
    words: str  # what was computed, as text
    by_seed: BySeed = field(default_factory=dict)  # what the interval is computed from; empty: not from seeds
    tails: Tails | None = None  # p-values by the method of the interval; None: exact


@dataclass(frozen=True)
class Reading:
    """The number of one arm and one seed, on the scale on which arms are subtracted: logarithms for ratios.

    The interval of one seed comes either from `by_sequence` or from `draws`.
    """

    value: float
    by_sequence: np.ndarray = field(default_factory=lambda: NOTHING)  # (S,) contributions, whose mean is the value
    draws: np.ndarray = field(default_factory=lambda: NOTHING)  # (DRAWS,) the value on resampled sequences
    sequences: int = 0  # number of sequences measured

    def agrees(self, rounding: float) -> bool:
        """Whether it has several sequences, and all of them have the same number up to `rounding`."""
        samples = self.draws if len(self.draws) else self.by_sequence
        return min(self.sequences, len(samples)) > 1 and bool(np.ptp(samples) <= rounding)

    def __sub__(self, other: Reading) -> Reading:
        """The difference, paired by sequence."""
        if not math.isfinite(self.value - other.value):
            return Reading(math.nan, sequences=self.sequences)
        if self.sequences != other.sequences:
            raise UndecidableError(
                f"the two arms were measured on {self.sequences} and {other.sequences} sequences; they cannot be paired"
            )
        return Reading(
            self.value - other.value,
            self.by_sequence - other.by_sequence,
            self.draws - other.draws,
            self.sequences,
        )


def mean_reading(by_sequence: np.ndarray) -> Reading:
    """A mean over sequences.

    Args:
        by_sequence: (S,).
    """
    return Reading(float(by_sequence.mean()), by_sequence, sequences=len(by_sequence))


def log_mean_reading(by_sequence: np.ndarray) -> Reading:
    """The logarithm of a mean over sequences. Contributions are relative deviations (delta method).

    Args:
        by_sequence: (S,), not negative. If the mean is 0 or not finite, the value of the reading is NaN.
    """
    with np.errstate(over="ignore"):
        mean = float(by_sequence.mean())
    if not 0 < mean < math.inf:
        return Reading(math.nan, sequences=len(by_sequence))
    return mean_reading(math.log(mean) + by_sequence / mean - 1)


def seed_interval(values: np.ndarray, level: float = LEVEL) -> tuple[float, float, float]:
    """Mean over seeds and its two-sided Student t interval.

    Args:
        values: (seeds,), one number per seed.
        level: confidence level of the interval.

    Returns:
        mean, low, high. For one seed: (value, -inf, inf). If a value is not finite, low and high are NaN.
    """
    values = np.asarray(values, dtype=np.float64)
    n = len(values)
    if n == 0:
        raise ValueError("an interval needs at least one value")
    mean = float(values.mean())
    if not np.isfinite(values).all():
        return mean, float("nan"), float("nan")
    if n == 1:
        return mean, float("-inf"), float("inf")
    half = float(special.stdtrit(n - 1, 0.5 + level / 2)) * float(values.std(ddof=1)) / np.sqrt(n)
    return mean, mean - half, mean + half


def resample(*matrices: np.ndarray, stream: int = 0) -> list[np.ndarray]:
    """Means over bootstrap resamples of the sequences. All matrices and all calls get the same resamples.

    Args:
        matrices: each (S, K), one row per sequence.
        stream: another number gives other resamples, for sequences that are independent of each other.

    Returns:
        one array (DRAWS, K) for each matrix.
    """
    sequences = len(matrices[0])
    generator = numpy_generator(0, "bootstrap over sequences", stream)
    weights = generator.multinomial(sequences, np.full(sequences, 1 / sequences), size=DRAWS) / sequences
    return [weights @ matrix for matrix in matrices]


def summarize(
    readings: dict[int, Reading],
    words: str,
    logarithmic: bool,
    limits: tuple[float, float],
    agreeing: bool = False,
    rounding: float = 0.0,
    two_kinds: bool = False,
) -> Estimate:
    """The estimate over all seeds, with its 95% interval.

    Args:
        readings: seed -> reading, at least one.
        logarithmic: the readings are logarithms. The estimate is a geometric mean over seeds.
        limits: smallest and largest possible value of the quantity. The interval is clipped to them.
        agreeing: if all numbers are equal and the limits are finite, use the interval of `bounded_mean`. The limits of
            a logarithmic quantity are above 0.
        rounding: numbers that differ by at most this much are equal.
        two_kinds: seeds may be of two kinds, so use the interval of `bounded_mean` in any case. The limits are finite.

    Raises:
        UndecidableError: a reading or the interval is not finite, a number is outside the limits, all seeds (or all
            sequences of the only seed) are equal, or there is only one sequence of one seed.
    """
    by_seed = numbers_of(readings, logarithmic)
    _require_numbers(readings, by_seed, limits)
    values = np.array([reading.value for reading in readings.values()])
    alone = len(values) == 1 and not two_kinds
    first = next(iter(readings.values()))
    samples = first.by_sequence if alone else values
    equal = first.agrees(rounding) if alone else len(values) > 1 and float(np.ptp(values)) <= rounding
    if two_kinds or (agreeing and equal and len(samples) and np.isfinite(limits).all()):
        samples = np.full_like(samples, samples[0]) if equal else samples
        return _of_bounded(samples, SEQUENCES if alone else SEEDS, words, logarithmic, limits, by_seed)
    if equal:
        those = f"{first.sequences} sequences of one seed" if alone else f"{len(values)} seeds"
        exactly = _to_scale(values, logarithmic)[0]
        raise UndecidableError(f"all {those} gave exactly {exactly:g}: no spread, no interval", by_seed)
    if len(values) > 1:
        value, low, high = seed_interval(values)
        interval = Method(STUDENT, len(values), SEEDS, logarithmic)
        tails = student_tails(lambda bound: values - bound)
    else:
        value, low, high, interval, tails = _one_seed(first, logarithmic)
    numbers = _to_scale(np.array([value, low, high]), logarithmic)
    if not np.isfinite(numbers).all():
        raise UndecidableError(
            "the estimate or its interval is not finite: an overflow, or resamples without a number", by_seed
        )
    value, low, high = np.clip(numbers, *limits).tolist()
    return Estimate(value, low, high, interval, words, by_seed, exponential_tails(tails) if logarithmic else tails)


def _require_numbers(
    readings: Mapping[int, Reading], by_seed: Mapping[int, float], limits: tuple[float, float]
) -> None:
    """Raise UndecidableError if a number is not finite or is outside the limits."""
    broken = [str(seed) for seed, reading in readings.items() if not math.isfinite(reading.value)]
    if broken:
        raise UndecidableError(
            f"no finite number for seed {', '.join(broken)}: an overflow, or a ratio with a part that is 0", by_seed
        )
    slack = OUTSIDE * max([1.0, *(abs(limit) for limit in limits if math.isfinite(limit))])
    outside = [str(seed) for seed, found in by_seed.items() if not limits[0] - slack <= found <= limits[1] + slack]
    if outside:
        expected = f"expected {limits[0]:g} to {limits[1]:g}"
        raise UndecidableError(f"a number outside its limits for seed {', '.join(outside)}: {expected}", by_seed)


def _of_bounded(
    samples: np.ndarray, of: str, words: str, logarithmic: bool, limits: tuple[float, float], by_seed: BySeed
) -> Estimate:
    """The estimate with the interval of `bounded_mean`. The limits are finite.

    Args:
        samples: (n,), on the scale of readings.
        of: what the samples are, as text.
    """
    ends = (math.log(limits[0]), math.log(limits[1])) if logarithmic else limits
    numbers = np.array([samples.mean(), *bounded_interval(samples, ends, LEVEL)])
    scaled = np.clip(_to_scale(numbers, logarithmic), *limits)
    for end, limit in zip(ends, limits, strict=True):
        scaled[numbers == end] = limit  # exp(log(limit)) differs from it by rounding
    value, low, high = scaled.tolist()
    method = Method(GAFFKE, len(samples), of, logarithmic, limits)
    tails = bounded_tails(samples, ends)
    return Estimate(value, low, high, method, words, by_seed, exponential_tails(tails) if logarithmic else tails)


def numbers_of(readings: Mapping[int, Reading], logarithmic: bool) -> dict[int, float]:
    """Seed -> number, from readings that are logarithms or numbers."""
    numbers = _to_scale(np.array([reading.value for reading in readings.values()]), logarithmic)
    return dict(zip(readings, numbers.tolist(), strict=True))


def _to_scale(numbers: np.ndarray, logarithmic: bool) -> np.ndarray:
    """Readings on the scale of the estimate; an overflow is infinite."""
    with np.errstate(over="ignore"):
        return np.exp(numbers) if logarithmic else numbers


def _one_seed(reading: Reading, logarithmic: bool) -> tuple[float, float, float, Method, Tails]:
    """Value, low, high, method and tails, from the spread over the sequences of one seed."""
    if reading.sequences < 2:
        raise UndecidableError("one sequence of one seed gives no interval")
    if len(reading.draws):
        low, high = np.quantile(reading.draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        method = Method(BOOTSTRAP, reading.sequences, SEQUENCES)
        return reading.value, float(low), float(high), method, bootstrap_tails(reading.draws)
    tails = student_tails(lambda bound: reading.by_sequence - bound)
    return *seed_interval(reading.by_sequence), Method(STUDENT, reading.sequences, SEQUENCES, logarithmic), tails
