"""Metrics of each step: collected on the device, written as Parquet during training, cut back on resume."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from ssm.base.tables import METRICS, read_table, write_table
from ssm.base.tables.metrics import CEILING
from ssm.training.distributed import ProcessGroup

PATIENCE = 10  # steps: a run has diverged if the mean loss over them is too high
MEANS = ("loss", "state_norm")  # columns that each process computes for its own rows of the batch
ACCURACY = "accuracy"  # the same, for tasks only


class Metrics:
    """Rows stay on the device until `flush`, so that a GPU does not wait at every step."""

    def __init__(self, vocab_size: int, group: ProcessGroup, answers: bool):
        self.group = group
        self.means = (*MEANS, ACCURACY) if answers else MEANS
        self.columns = {name: kind for name, kind in METRICS.columns.items() if answers or name != ACCURACY}
        self.rows: list[dict[str, Any]] = []
        self.pending: list[dict[str, Any]] = []
        self.ceiling = CEILING * math.log(vocab_size)

    def add(self, **row: int | float | Tensor) -> None:
        """Add one step's row, keyed by the columns of METRICS. Values may be tensors on any device.

        Values of `means` are for this process's rows of the batch. `flush` averages them over the processes.
        """
        self.pending.append(row)

    def flush(self) -> str | None:
        """Fetch the pending rows, together with all processes. Returns why training has diverged, or None."""
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
        """Mean loss of the last fetched steps."""
        return self._recent("loss")

    @property
    def note(self) -> str:
        """Text for a progress bar: the loss and, for a task, the accuracy. Empty before rows are fetched."""
        if not self.rows:
            return ""
        right = f", accuracy {self._recent(ACCURACY):.2f}" if ACCURACY in self.means else ""
        return f"loss {self.last_loss:.3f}{right}"

    def write(self, path: Path, provenance: dict[str, Any]) -> None:
        """Write all fetched rows as a whole table."""
        write_table(pl.DataFrame(self.rows, schema=self.columns), METRICS, path, provenance)

    def _recent(self, column: str) -> float:
        """Mean of the last fetched steps."""
        recent = [row[column] for row in self.rows[-PATIENCE:]]
        return sum(recent) / len(recent) if recent else math.nan

    def resume(self, path: Path, step: int) -> None:
        """Read the rows up to `step` from the table that the last process wrote."""
        self.rows = read_table(path, METRICS).filter(pl.col("step") <= step).to_dicts() if step else []
