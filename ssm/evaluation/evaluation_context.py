"""What a measurement is made on: a model, held-out text, a device."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ssm.base.progress import Progress
from ssm.base.seeds import derived_seed
from ssm.data.batches import HeldOutWindows, held_out_windows
from ssm.data.store import TokenStore
from ssm.models.readable import Readable
from ssm.training.distributed import SINGLE_PROCESS, ProcessGroup


@dataclass(frozen=True)
class EvaluationContext:
    """A model in evaluation mode, the seed of its run, the tokens, and the title of the progress bar."""

    model: Readable
    seed: int
    store: TokenStore
    device: torch.device
    title: str
    group: ProcessGroup = SINGLE_PROCESS

    def windows(self, sequences: int, length: int, seed: int) -> HeldOutWindows:
        """Held-out windows, a function of the measurement's seed and the run's.

        All arms of one seed read the same windows, so that they can be compared in pairs. Other seeds read others, so
        that the spread over seeds holds the sampling error of the text too.
        """
        return held_out_windows(self.store.held_out, sequences, length, derived_seed(seed, "windows", self.seed))

    def groups(self, sequences: int, at_once: int) -> list[Tensor]:
        """The numbers of the sequences that this process reads, out of so many, `at_once` at a time: (n,) each."""
        mine = torch.arange(sequences)[self.group.rows(sequences)]
        return [group for group in mine.split(at_once) if len(group)]

    def together(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that the processes made of their sequences, in main; what the others get is of no use."""
        if self.group.size == 1:
            return frame
        buffer = BytesIO()
        frame.write_ipc(buffer)
        content = torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)
        sizes = self.group.stacked(torch.tensor(len(content))).tolist()
        everything = self.group.gathered(content).numpy()
        if not self.group.main:
            return frame
        parts = np.split(everything, np.cumsum(sizes)[:-1])
        return pl.concat(pl.read_ipc(BytesIO(part.tobytes())) for part in parts)

    def progress(self, sequences: int, each: int, unit: str = "tokens") -> Progress:
        """Over this process's share of `sequences`, with `each` units in each."""
        rows = self.group.rows(sequences)
        return Progress(self.title, (rows.stop - rows.start) * each, unit, shown=self.group.main)
