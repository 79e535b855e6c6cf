"""Speed of training by several processes against one: the runs of `ssm train` themselves, short, way by way in turn.

    one       one process trains the whole batch, the others wait
    part      one process trains its part of the batch, the others wait
    apart     every process trains its part of the batch by itself, all at once: what the machine's cores give
    together  they train it as a team

A step costs calls, which are as many for a part of a batch, and arithmetic, which is less. So `apart` is the limit of
`together`, and a batch of a given size gains more from a second process the larger it is. Where instead every process
keeps the batch that one process had (`together` against `part`), only the waiting for each other costs.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import polars as pl
import torch

from ssm.base.tables import METRICS, PROCESS_SPEED, read_table
from ssm.bench.training_speed import GateError
from ssm.data.store import TokenSplit, TokenStore
from ssm.specs.corpora.stdlib import StdlibCorpus
from ssm.specs.data import DataSpec
from ssm.specs.mixers.mamba2 import Mamba2Mixer
from ssm.specs.model import ModelSpec
from ssm.specs.training import Budget, RunSpec, TrainingSpec
from ssm.training.distributed import ALONE, Team
from ssm.training.loop import train
from ssm.training.machine import Machine

# mamba2-slow of config/models.yaml, which the smoke scale trains: 85,464 parameters.
MODEL = ModelSpec(
    name="mamba2-slow",
    d_model=64,
    n_layers=2,
    mixer=Mamba2Mixer(d_state=64, head_dim=32, a_range=(1, 1), dt_range=(1e-4, 1e-3)),
    peak_lr=4e-3,
)
CONTEXT, BATCH_TOKENS, LARGE = 32, 512, 4096  # the smoke scale's, and a batch that several processes share well
TOKENS = 100_000  # of one short run; at least STEPS steps
STEPS = 20
TOLERANCE = 1e-4  # of the last loss, relative
WAYS = ("one", "part", "apart", "together")


def process_speed(team: Team, repeats: int, seconds: float) -> Iterator[pl.DataFrame]:
    """Time every way at every size of a batch; all processes of the team call it.

    Args:
        repeats: short runs of each way, at most.
        seconds: what they may take together, for each.

    Yields:
        For every size a table of the schema PROCESS_SPEED, the same in every process.

    Raises:
        GateError: together they do not reach the loss that one process reaches.
    """
    for tokens in sorted({BATCH_TOKENS, BATCH_TOKENS * team.size, LARGE}):
        first = {way: _short_run(way, tokens, team) for way in WAYS}
        difference = abs(first["together"][1] / first["one"][1] - 1)
        if not difference <= TOLERANCE:  # NaN is a difference
            raise GateError(f"no speed to report: the losses of one process and {team.size} differ by {difference:.3g}")
        times = [ms / 1000 * _steps(tokens) for ms, _ in first.values()]
        rows = [
            (MODEL.name, team.size, tokens, way, repeat, _short_run(way, tokens, team)[0])
            for repeat in range(1, min(repeats, max(1, int(seconds / max(times)))) + 1)
            for way in WAYS
        ]
        yield pl.DataFrame(rows, schema=PROCESS_SPEED.columns, orient="row")


def _short_run(way: str, tokens: int, team: Team) -> tuple[float, float]:
    """Milliseconds a step of the slowest process, and the last loss of process 0."""
    team.wait()
    mine = (0.0, 0.0)
    if way not in ("one", "part") or team.main:
        part = tokens // team.size if way in ("part", "apart") else tokens
        mine = _train(part, _steps(tokens), team if way == "together" else ALONE)
    everybody = team.stacked(torch.tensor(mine, dtype=torch.float64))  # (processes, 2)
    return float(everybody[:, 0].max()), float(everybody[0, 1])


def _steps(tokens: int) -> int:
    return max(STEPS, TOKENS // tokens)


def _train(batch_tokens: int, steps: int, team: Team) -> tuple[float, float]:
    """Milliseconds a step, and the last loss (where it is written)."""
    store = _noise()
    training = TrainingSpec(context=CONTEXT, batch_tokens=batch_tokens, budget=Budget(steps=steps))
    run = RunSpec(model=MODEL, data=store.spec, training=training, seed=1)
    with tempfile.TemporaryDirectory() as name, redirect_stderr(io.StringIO()):  # its progress is not for a table
        record = train(run, store, Path(name), torch.device("cpu"), machine=Machine(team))
        loss = read_table(Path(name) / "metrics.parquet", METRICS)["loss"][-1] if team.main else 0.0
    return 1000 * record["seconds"] / steps, loss


def _noise() -> TokenStore:
    """Random bytes in memory: the speed does not depend on what is read."""
    spec = DataSpec(name="noise", corpus=StdlibCorpus())
    tokens = np.random.default_rng(0).integers(256, size=2**20, dtype=np.uint8)
    split = TokenSplit("noise", [tokens], np.zeros(1, np.int64), 256)
    manifest = {"spec": spec.content(), "corpus": {"sha256": ""}}
    return TokenStore(Path("noise"), manifest, split, split, split)


def medians(frame: pl.DataFrame) -> dict[str, float]:
    """Milliseconds a step by way."""
    return {way: float(np.median(frame.filter(way=way)["milliseconds"].to_numpy())) for way in WAYS}


def heading() -> str:
    """The first two lines of the table."""
    return (
        f"{'tokens':>8}{'tokens a':>10}{'milliseconds a step':>40}{'times one process':>22}{'times one process':>20}\n"
        f"{'a step':>8}{'process':>10}{'one':>10}{'part':>10}{'apart':>10}{'together':>10}"
        f"{'apart':>11}{'together':>11}{'with its part':>20}"
    )


def line(frame: pl.DataFrame) -> str:
    """A line of the table: medians, and how many times more tokens a second several processes train on than one.

    One that trains the whole batch (`one`), and one that trains its part alone (`part`).
    """
    tokens, processes = frame["batch_tokens"][0], frame["processes"][0]
    ms = medians(frame)
    ratios = "".join(f"{ms['one'] / ms[way]:>10.2f}x" for way in ("apart", "together"))
    kept = f"{processes * ms['part'] / ms['together']:>19.2f}x"
    return f"{tokens:>8}{tokens // processes:>10}" + "".join(f"{ms[way]:>10.2f}" for way in WAYS) + ratios + kept
