"""How often 95% intervals contain the true value, if seeds are of two kinds: some solve the task, others do not.

    python tests/claims/coverage.py

A seed that solves the task has a share of right answers of .97, another one .46, with a spread of .02. A seed that
solves it does so at a random step between 100 and 800, when training ends. The script draws 3 to 40 seeds, of which 10,
20, 50, 80 or 90% solve the task on average. It prints how often, in percent, an interval over these seeds contains the
true value. The paired differences are those from an arm in which half of the seeds solve it. In half of the seeds, the
same luck decides for both arms.

`Gaffke` is the interval of claims about seeds of two kinds, `Student t` that of other claims, both as
`ssm.claims.estimate` makes them. `Wilson` is shown for shares. Gaffke's intervals have 1,000 trials, the others 4,000.
The random seeds are fixed. The script takes about ten minutes on one core.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy import stats

from ssm.claims.estimate import Reading as OneSeed
from ssm.claims.estimate import UndecidableError, summarize

SOLVED, OTHER, SPREAD, STEPS = 0.97, 0.46, 0.02, 800
COUNTS, SHARES = (3, 5, 8, 16, 20, 40), (0.1, 0.2, 0.5, 0.8, 0.9)
Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]  # of whether seeds solve it: their numbers
Method = Callable[[tuple[float, ...], tuple[float, float]], tuple[float, float]]  # of numbers and limits: an interval


def right(random: np.random.Generator, solved: np.ndarray) -> np.ndarray:
    """The share of right answers."""
    return np.clip(random.normal(np.where(solved, SOLVED, OTHER), SPREAD), 0, 1)


def steps(random: np.random.Generator, solved: np.ndarray) -> np.ndarray:
    """Steps until the task is solved, or all steps."""
    return np.where(solved, random.uniform(100, STEPS, solved.shape), STEPS)


def whether(_: np.random.Generator, solved: np.ndarray) -> np.ndarray:
    return solved.astype(float)


KINDS: dict[str, tuple[Draw, float]] = {  # and the largest number; the smallest is 0
    "mean of right answers": (right, 1.0),
    "share of seeds": (whether, 1.0),
    "steps": (steps, float(STEPS)),
}


def numbers(kind: str, paired: bool, share: float, shape: tuple[int, int]) -> np.ndarray:
    """The numbers of seeds (trials, seeds), of which a share solves the task; paired: differences of two arms."""
    draw, _ = KINDS[kind]
    random = np.random.default_rng(shape)
    luck = random.random(shape)
    own = draw(random, luck < share)
    if not paired:
        return own
    other = np.where(random.random(shape) < 0.5, luck, random.random(shape))
    return own - draw(random, other < 0.5)


def estimated(values: tuple[float, ...], limits: tuple[float, float], two_kinds: bool) -> tuple[float, float]:
    """The interval that a claim gets; without one, nothing is covered."""
    readings = {seed: OneSeed(value) for seed, value in enumerate(values)}
    try:
        found = summarize(readings, "", False, limits, agreeing=True, two_kinds=two_kinds)
    except UndecidableError:
        return np.inf, -np.inf
    return found.low, found.high


@cache
def gaffke(values: tuple[float, ...], limits: tuple[float, float]) -> tuple[float, float]:
    return estimated(values, limits, two_kinds=True)


def student(values: tuple[float, ...], limits: tuple[float, float]) -> tuple[float, float]:
    return estimated(values, limits, two_kinds=False)


def wilson(values: tuple[float, ...], _: tuple[float, float]) -> tuple[float, float]:
    found = stats.binomtest(round(sum(values)), len(values)).proportion_ci(method="wilson")
    return found.low, found.high


def coverage(method: Method, kind: str, paired: bool, share: float, count: int, trials: int) -> float:
    """How often the interval of `count` seeds contains the true mean."""
    largest = KINDS[kind][1]
    limits = (-largest if paired else 0.0, largest)
    true = numbers(kind, paired, share, (10**6, 1)).mean()
    found = [method(tuple(sorted(values)), limits) for values in numbers(kind, paired, share, (trials, count)).tolist()]
    return float(np.mean([low <= true <= high for low, high in found]))


def main() -> int:
    places = [(share, count) for count in COUNTS for share in SHARES]
    print(f"{'seeds':<42}" + "".join(f"{count:>5}" for _, count in places))
    print(f"{'seeds that solve it, %':<42}" + "".join(f"{100 * share:5.0f}" for share, _ in places))
    for kind in KINDS:
        for paired in (False, True):
            methods: dict[str, tuple[Method, int]] = {"Gaffke": (gaffke, 1000), "Student t": (student, 4000)}
            if kind == "share of seeds" and not paired:
                methods["Wilson"] = (wilson, 4000)
            for name, (method, trials) in methods.items():
                found = [coverage(method, kind, paired, share, count, trials) for share, count in places]
                row = f"{kind}{', paired' if paired else ''}: {name}"
                print(f"{row:<42}" + "".join(f"{100 * one:5.0f}" for one in found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
