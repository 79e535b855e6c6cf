"""What a measurement is made on: a model, held-out text, a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ssm.base.progress import Progress
from ssm.base.seeds import derived_seed
from ssm.data.batches import HeldOutWindows, held_out_windows
from ssm.data.store import TokenStore
from ssm.models.backbone import LanguageModel


@dataclass(frozen=True)
class Subject:
    """A model in evaluation mode, the seed of its run, the tokens, and the title of the progress bar."""

    model: LanguageModel
    seed: int
    store: TokenStore
    device: torch.device
    title: str

    def windows(self, sequences: int, length: int, seed: int) -> HeldOutWindows:
        """Held-out windows, a function of the measurement's seed and the run's.

        All arms of one seed read the same windows, so that they can be compared in pairs. Other seeds read others, so
        that the spread over seeds holds the sampling error of the text too.
        """
        return held_out_windows(self.store.held_out, sequences, length, derived_seed(seed, "windows", self.seed))

    def progress(self, total: int, unit: str = "tokens") -> Progress:
        return Progress(self.title, total, unit)
