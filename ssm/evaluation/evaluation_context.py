"""The input of a measurement: a model, held-out data, and a device."""

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
    """A model in evaluation mode, the seed of its run, the token store, and the title of the progress bar."""

    model: Readable
    seed: int
    store: TokenStore
    device: torch.device
    title: str
    group: ProcessGroup = SINGLE_PROCESS

    def windows(self, sequences: int, length: int, seed: int) -> HeldOutWindows:
        """Held-out windows, chosen by the seeds of the measurement and of the run.

        All arms of a seed read the same windows, so they can be compared in pairs. Other seeds read other windows, so
        the spread over seeds includes the sampling error of the text.
        """
        return held_out_windows(self.store.held_out, sequences, length, derived_seed(seed, "windows", self.seed))

    def groups(self, sequences: int, at_once: int) -> list[Tensor]:
        """The numbers of the sequences that this process reads, in groups (n,) of at most `at_once`."""
        mine = torch.arange(sequences)[self.group.rows(sequences)]
        return [group for group in mine.split(at_once) if len(group)]

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes. `values` are zero where they belong to sequences of another process."""
        return self.group.total(values)

    def gather(self, frame: pl.DataFrame) -> pl.DataFrame:
        """All rows of all processes, in the main process. The other processes get their own rows."""
        if self.group.size == 1:
            return frame
        buffer = BytesIO()
        frame.write_ipc(buffer)
        content = torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)
        sizes = self.group.all_gather(torch.tensor(len(content))).tolist()
        everything = self.group.gather(content).numpy()
        if not self.group.main:
            return frame
        parts = np.split(everything, np.cumsum(sizes)[:-1])
        return pl.concat(pl.read_ipc(BytesIO(part.tobytes())) for part in parts)

    def progress(self, sequences: int, each: int) -> Progress:
        """Progress over the `sequences` of this process, with `each` tokens in each sequence."""
        rows = self.group.rows(sequences)
        return Progress(self.title, (rows.stop - rows.start) * each, "tokens", shown=self.group.main)
