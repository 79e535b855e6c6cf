"""An estimate with its interval: over seeds where there are several, over sequences where there is one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ssm.base.curves import seed_interval
from ssm.base.lazy import special
from ssm.base.seeds import numpy_generator

LEVEL = 0.95
DRAWS = 2000  # bootstrap resamples
NOTHING = np.empty(0)


class UndecidableError(Exception):
    """The tables cannot answer this claim at this scale; the message says why, for the verdict's reason."""


@dataclass(frozen=True)
class Estimate:
    """A quantity with its interval; a ratio is given as a ratio, not as its logarithm."""

    value: float
    low: float
    high: float
    interval: str  # how the interval was made
    words: str  # what was computed


@dataclass(frozen=True)
class Reading:
    """One number of one arm and one seed, on the scale where arms are subtracted: logarithms for ratios.

    Besides its value it holds what one seed's interval is made of, one of three.
    """

    value: float
    by_sequence: np.ndarray = field(default_factory=lambda: NOTHING)  # (S,) contributions, whose mean is the value
    draws: np.ndarray = field(default_factory=lambda: NOTHING)  # (DRAWS,) the value on resampled sequences
    error: float = math.nan  # its standard error over the sequences ...
    sequences: int = 0  # ... of which there are so many

    def __sub__(self, other: Reading) -> Reading:
        """The difference, paired by sequence; where only standard errors are known, they add in quadrature."""
        if not math.isfinite(self.value - other.value):
            return Reading(math.nan, sequences=self.sequences)
        if self.sequences != other.sequences:
            raise UndecidableError(
                f"the two arms were measured on {self.sequences} and {other.sequences} sequences: nothing to pair"
            )
        return Reading(
            self.value - other.value,
            self.by_sequence - other.by_sequence,
            self.draws - other.draws,
            math.hypot(self.error, other.error),
            self.sequences,
        )


def mean_reading(by_sequence: np.ndarray) -> Reading:
    """A reading that is a mean over sequences.

    Args:
        by_sequence: (S,).
    """
    return Reading(float(by_sequence.mean()), by_sequence, sequences=len(by_sequence))


def log_mean_reading(by_sequence: np.ndarray) -> Reading:
    """The logarithm of a mean over sequences; a sequence contributes its relative deviation (delta method).

    Args:
        by_sequence: (S,), not negative. A mean that is 0 or not finite has no logarithm: the reading is NaN.
    """
    with np.errstate(over="ignore"):
        mean = float(by_sequence.mean())
    if not 0 < mean < math.inf:
        return Reading(math.nan, sequences=len(by_sequence))
    return mean_reading(math.log(mean) + by_sequence / mean - 1)


def resample(*matrices: np.ndarray, apart: int = 0) -> list[np.ndarray]:
    """Means of bootstrap resamples of the sequences: the same resamples for every matrix, and in every call.

    Args:
        matrices: each (S, K), a row a sequence.
        apart: another number draws other resamples, for sequences that have nothing to do with each other.

    Returns:
        for each matrix (DRAWS, K).
    """
    sequences = len(matrices[0])
    generator = numpy_generator(0, "bootstrap over sequences", apart)
    weights = generator.multinomial(sequences, np.full(sequences, 1 / sequences), size=DRAWS) / sequences
    return [weights @ matrix for matrix in matrices]


def summarize(
    readings: dict[int, Reading],
    words: str,
    logarithmic: bool,
    limits: tuple[float, float],
    agreeing: bool = False,
    rounding: float = 0.0,
) -> Estimate:
    """The estimate over all seeds.

    Args:
        readings: seed -> reading, at least one.
        logarithmic: the readings are logarithms; the estimate is their exponential (a geometric mean over seeds).
        limits: the least and the largest value that the quantity can take; the interval is cut there.
        agreeing: numbers that are all the same have an interval where they have limits (see `agreement`).
        rounding: numbers that differ by no more are the same.

    Raises:
        UndecidableError: a reading or the interval is not finite, all seeds agree, or there is one seed with one
            sequence.
    """
    broken = [str(seed) for seed, reading in readings.items() if not math.isfinite(reading.value)]
    if broken:
        raise UndecidableError(
            f"not a finite number for seed {', '.join(broken)}: a number overflowed, or a ratio has a part that is 0"
        )
    values = np.array([reading.value for reading in readings.values()])
    alone = next(iter(readings.values())).by_sequence if len(readings) == 1 else NOTHING
    same = values if len(values) > 1 else alone
    if agreeing and np.isfinite(limits).all() and len(same) > 1 and np.ptp(same) <= rounding:
        over = "seeds" if len(values) > 1 else "sequences of one seed: other seeds may differ more"
        low, high = agreement(float(same[0]), len(same), limits)
        how = f"95%, of numbers between {limits[0]:g} and {limits[1]:g} that agree, over {len(same)} {over}"
        return Estimate(float(same[0]), low, high, how, words)
    if len(readings) > 1 and np.ptp(values) <= rounding:
        exactly = _shown(values, logarithmic)[0]
        raise UndecidableError(f"all {len(readings)} seeds gave exactly {exactly:g}: their spread gives no interval")
    if len(readings) > 1:
        value, low, high = seed_interval(values, LEVEL)
        interval = f"95% Student t over {len(readings)} seeds"
    else:
        value, low, high, interval = _one_seed(next(iter(readings.values())))
    numbers = _shown(np.array([value, low, high]), logarithmic)
    if not np.isfinite(numbers).all():
        raise UndecidableError("the estimate or its interval overflows a 64-bit number")
    value, low, high = np.clip(numbers, *limits).tolist()
    return Estimate(value, low, high, interval, words)


def _shown(numbers: np.ndarray, logarithmic: bool) -> np.ndarray:
    """Readings as an estimate gives them; what overflows is infinite."""
    with np.errstate(over="ignore"):
        return np.exp(numbers) if logarithmic else numbers


def agreement(value: float, count: int, limits: tuple[float, float]) -> tuple[float, float]:
    """The 95% interval of a mean of which `count` independent draws were all `value`; any draw lies inside `limits`.

    A mean further down would be made by draws that are `value` with a probability p and the lower limit else, and all
    of them would be `value` with probability p ** count; so with the upper limit. Nothing else is assumed (for shares
    of 0 or 1 it is the interval of Clopper and Pearson 1934).
    """
    share = ((1 - LEVEL) / 2) ** (1 / count)
    return limits[0] + share * (value - limits[0]), limits[1] - share * (limits[1] - value)


def _one_seed(reading: Reading) -> tuple[float, float, float, str]:
    """Value, low, high and how they were made, from the spread over the sequences of one seed."""
    if reading.sequences < 2:
        raise UndecidableError("one seed and one sequence give no interval")
    over = f"over {reading.sequences} sequences of one seed: other seeds may differ more"
    if len(reading.draws):
        low, high = np.quantile(reading.draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return reading.value, float(low), float(high), f"95% bootstrap {over}"
    if len(reading.by_sequence):
        return *seed_interval(reading.by_sequence, LEVEL), f"95% Student t {over}"
    half = float(special.stdtrit(reading.sequences - 1, (1 + LEVEL) / 2)) * reading.error
    return reading.value, reading.value - half, reading.value + half, f"95% Student t {over}"
