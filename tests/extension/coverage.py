"""How often `ssm extend` makes a false claim, measured on resamples of real paired losses with a known mean.

    python tests/extension/coverage.py [--trials 20000]

The script trains a small Mamba-2 with slow decays on Python's standard library, and continues with State Passing for
10 or 100 steps. It measures all models on the same 1,024 unseen windows. A pool has one number per window: the change
of the far loss, of the loss in context or of the paired ratio. One more pool has the ratio of the original.

Then it draws 4 to 128 windows from a pool. The table shows, in percent, how often the upper end of a 95% interval of
their mean is below the mean of the pool. If that mean is exactly at the border of a claim, this is the rate of false
claims. The border is 1 for a gain, and the tolerance for a model that holds. 2.5 are allowed.

A row shows the worst of all pools. `measured`: the pools are not changed. `tails`: the worst tenth of the windows is
three times as far from the mean. `rare`: every tenth window is worse by ten standard deviations. The last row shows how
often no such window is drawn. No interval can see these failures.

The seeds are fixed. The script takes about a minute on one idle core. `ssm.diagnosis.intervals.cautious` is the rule
that follows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

import numpy as np
import polars as pl
import torch
from scipy.special import ndtr, ndtri, stdtrit
from small import model_spec, run_spec

from ssm.claims.table_numbers import mean_loss, paired_log_ratio
from ssm.data.build import build_store
from ssm.data.own_text import disjoint_windows
from ssm.data.store import TokenStore
from ssm.diagnosis.intervals import reach
from ssm.diagnosis.readings import SHARING, far_start
from ssm.diagnosis.session import FixedWindowsContext
from ssm.evaluation.position_loss import position_loss
from ssm.evaluation.restart_loss import restart_loss
from ssm.models.weights_file import load_model
from ssm.specs.data import DataSpec
from ssm.specs.measurements.position_loss import PositionLoss
from ssm.specs.measurements.restart_loss import RestartLoss
from ssm.training.loop import train

CONTEXT, LENGTH, WINDOWS = 16, 256, 1024
COUNTS = (4, 8, 12, 16, 24, 32, 48, 64, 128)
RARE = 0.1  # of the windows
POST = {"little": 10, "much": 100}  # steps of State Passing
Interval = Callable[[np.ndarray], np.ndarray]  # (trials, n) -> (trials,) the upper ends of 95% intervals of the mean


def pools(folder: Path) -> dict[str, np.ndarray]:
    """The pools: (windows,) nats by name."""
    data = {"name": "stdlib", "corpus": {"kind": "stdlib"}, "held_out": 0.5, "max_documents": 300}
    spec = DataSpec.parse(data, "coverage")
    build_store(spec, folder / "tokens")
    store, device = TokenStore.open(folder / "tokens"), torch.device("cpu")
    slow = {"d_state": 16, "a_range": [0.05, 0.05], "dt_range": [0.1, 0.1]}
    base = run_spec(store.spec, budget={"steps": 300}, batch_tokens=512)
    base = base.model_copy(update={"model": model_spec(mixer=slow, d_model=32)})
    train(base, store, folder / "base", device)
    before = losses(folder / "base", store)
    found = {}
    for name, steps in POST.items():
        passing = {"policy": "state_passing", "p_zero": 0.1}
        more = run_spec(
            store.spec, parent=base, budget={"steps": steps}, batch_tokens=512, initial_state=passing, lr_scale=0.1
        )
        train(more, store, folder / name, device, folder / "base")
        after = losses(folder / name, store)
        found |= {f"{what}, {name}": after[what] - before[what] for what in before}
    return found | {"ratio of the original": before["ratio"]}


def losses(run: Path, store: TokenStore) -> dict[str, np.ndarray]:
    """The numbers that `ssm.extension.losses.factors_between` compares, (windows,) each."""
    model, _ = load_model(run / "model.safetensors")
    windows = disjoint_windows(store.held_out, LENGTH, seed=1, at_least=WINDOWS)
    ctx = FixedWindowsContext(model.eval(), 1, store, torch.device("cpu"), f"measure {run.name}", given=windows)
    full = position_loss(PositionLoss(length=LENGTH, sequences=WINDOWS), ctx)
    restart = restart_loss(RestartLoss(length=LENGTH, sequences=WINDOWS, context=CONTEXT, everywhere=True), ctx)
    far = far_start(full)
    tables: dict[str, pl.DataFrame] = {
        "far": mean_loss(full, far, LENGTH).select(value="loss"),
        "in context": mean_loss(restart, CONTEXT // 2, LENGTH).select(value="loss"),
        "ratio": paired_log_ratio(full, restart, LENGTH, far).select("value"),
    }
    return {name: table["value"].to_numpy() for name, table in tables.items()}


def tails(values: np.ndarray) -> np.ndarray:
    """The worst tenth is three times as far from the mean."""
    away = values - values.mean()
    return np.where(away > np.quantile(away, 1 - RARE), 3 * away, away)


def rare(values: np.ndarray) -> np.ndarray:
    """Every tenth window is worse by ten standard deviations."""
    return values + 10 * values.std() * (np.arange(len(values)) % round(1 / RARE) == 0)


def student(drawn: np.ndarray, level: float = 0.95) -> np.ndarray:
    n = drawn.shape[1]
    return drawn.mean(1) + stdtrit(n - 1, 0.5 + level / 2) * drawn.std(1, ddof=1) / np.sqrt(n)


def with_one_unseen(drawn: np.ndarray) -> np.ndarray:
    """The interval of `ssm extend` (`ssm.diagnosis.intervals.cautious`)."""
    return drawn.mean(1) + reach(drawn.shape[1]) * drawn.std(1, ddof=1)


def of_a_ratio(drawn: np.ndarray) -> np.ndarray:
    """The narrowest interval by which a diagnosis says that a model holds."""
    return student(drawn, 1 - 0.05 / SHARING)


def accelerated(drawn: np.ndarray) -> np.ndarray:
    """The upper end of the bias-corrected, accelerated bootstrap (BCa)."""
    random, n = np.random.default_rng(5), drawn.shape[1]
    found = np.empty(len(drawn))
    for trial, values in enumerate(drawn):
        means = np.sort(values[random.integers(n, size=(999, n))].mean(1))
        away = values - values.mean()
        square = (away**2).sum()
        acceleration = (away**3).sum() / (6 * square**1.5) if square else 0.0
        bias = ndtri(np.clip((means < values.mean()).mean(), 1e-3, 1 - 1e-3))
        shifted = bias + ndtri(0.975)
        level = ndtr(bias + shifted / (1 - acceleration * shifted))
        found[trial] = np.quantile(means, level)
    return found


INTERVALS: dict[str, Interval] = {
    "Student t": student,
    "BCa": accelerated,
    "cautious": with_one_unseen,
    "of a verdict": of_a_ratio,
}
WORSE: dict[str, Callable[[np.ndarray], np.ndarray]] = {"measured": lambda values: values, "tails": tails, "rare": rare}


def false_claims(values: np.ndarray, count: int, interval: Interval, trials: int) -> float:
    """How often the upper end of an interval of `count` windows is below the true mean."""
    drawn = np.random.default_rng(count).choice(values, (trials, count))
    return float((interval(drawn) < values.mean()).mean())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20_000, metavar="N", help="default: 20000; a tenth for BCa")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="coverage-") as scratch:
        real = pools(Path(scratch))
    print(f"{'pool':<28}{'mean':>8}{'spread':>8}{'skewness':>10}{'kurtosis':>10}")
    for name, values in real.items():
        away = (values - values.mean()) / values.std()
        print(f"{name:<28}{values.mean():8.3f}{values.std():8.3f}{(away**3).mean():10.2f}{(away**4).mean():10.1f}")
    print(f"\n{'false claims, %':<28}" + "".join(f"{count:>7}" for count in COUNTS))
    for how, worse in WORSE.items():
        for name, interval in INTERVALS.items():
            trials = args.trials // (20 if interval is accelerated else 1)
            rates = [
                max(false_claims(worse(values), count, interval, trials) for values in real.values())
                for count in COUNTS
            ]
            print(f"{f'{name}, {how}':<28}" + "".join(f"{100 * rate:7.1f}" for rate in rates))
    print(f"{'no rare window drawn':<28}" + "".join(f"{100 * (1 - RARE) ** count:7.1f}" for count in COUNTS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
