"""Per-step metrics: gathered on the device, written as Parquet while training runs, cut back on resume."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from ssm.base.tables import METRICS, read_table, write_table
from ssm.base.tables.metrics import CEILING
from ssm.training.distributed import SINGLE_PROCESS, ProcessGroup

SIDECAR = "checkpoint.metrics.parquet"  # the rows up to the checkpoint, and perhaps some more
PATIENCE = 10  # steps over which the loss is averaged before it is called diverged
MEANS = ("loss", "state_norm")  # columns that each process knows for its own rows of the batch
ACCURACY = "accuracy"  # likewise, where a task asks something


class Metrics:
    """Rows wait as device tensors until `flush`, so that a GPU is not stopped at every step."""

    def __init__(self, vocab_size: int, group: ProcessGroup = SINGLE_PROCESS, answers: bool = False):
        self.group = group
        self.means = (*MEANS, ACCURACY) if answers else MEANS
        self.columns = {name: kind for name, kind in METRICS.columns.items() if answers or name != ACCURACY}
        self.rows: list[dict[str, Any]] = []
        self.pending: list[dict[str, Any]] = []
        self.ceiling = CEILING * math.log(vocab_size)

    def add(self, **row: int | float | Tensor) -> None:
        """One step's row, keyed by the columns of METRICS; values may be tensors on any device.

        Those of `means` are over this process's rows of the batch, their mean over processes is that of the whole.
        """
        self.pending.append(row)

    def flush(self) -> str | None:
        """Fetch the pending rows, all processes at once. Returns the reason if training has diverged at one of them."""
        rows = [{key: float(v) if isinstance(v, Tensor) else v for key, v in row.items()} for row in self.pending]
        if rows and self.group.size > 1:
            mine = torch.tensor([[row[key] for key in self.means] for row in rows], dtype=torch.float64)
            means = self.group.total(mine) / self.group.size  # (steps, means)
            rows = [
                row | dict(zip(self.means, values, strict=True))
                for row, values in zip(rows, means.tolist(), strict=True)
            ]
        for row in rows:
            self.rows.append(row)
            reason = self._diverged()
            if reason:
                self.pending = []
                return reason
        self.pending = []
        return None

    def _diverged(self) -> str | None:
        row = self.rows[-1]
        for column in ("loss", "grad_norm"):
            if not math.isfinite(row[column]):
                return f"{column} is {row[column]} at step {row['step']}"
        if len(self.rows) >= PATIENCE and self.last_loss > self.ceiling:
            return (
                f"mean loss of the last {PATIENCE} steps is {self.last_loss:.3g} at step {row['step']}, above 2 log V"
            )
        return None

    @property
    def last_loss(self) -> float:
        """Mean loss of the last steps that were fetched."""
        return self._recent("loss")

    @property
    def note(self) -> str:
        """The loss and, of a task, the accuracy, for a progress bar; nothing before one is fetched."""
        if not self.rows:
            return ""
        right = f", accuracy {self._recent(ACCURACY):.2f}" if ACCURACY in self.means else ""
        return f"loss {self.last_loss:.3f}{right}"

    def frame(self) -> pl.DataFrame:
        return pl.DataFrame(self.rows, schema=self.columns)

    def write(self, path: Path, provenance: dict[str, Any]) -> None:
        """Write all fetched rows as a whole table."""
        write_table(self.frame(), METRICS, path, provenance)

    def _recent(self, column: str) -> float:
        """The mean of the last steps that were fetched."""
        recent = [row[column] for row in self.rows[-PATIENCE:]]
        return sum(recent) / len(recent) if recent else math.nan

    def resume(self, path: Path, step: int) -> None:
        """Take the rows up to `step` from the table that a killed process left."""
        self.rows = read_table(path, METRICS).filter(pl.col("step") <= step).to_dicts() if step else []
