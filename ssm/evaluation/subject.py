"""What a measurement is made on: a model, held-out text, a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ssm.base.progress import Progress
from ssm.data.batches import HeldOutWindows, held_out_windows
from ssm.data.store import TokenStore
from ssm.models.backbone import LanguageModel


@dataclass(frozen=True)
class Subject:
    """A model in evaluation mode, the tokens, and the title of the progress bar."""

    model: LanguageModel
    store: TokenStore
    device: torch.device
    title: str

    def windows(self, sequences: int, length: int, seed: int) -> HeldOutWindows:
        """Held-out windows; the same ones for every model, so that comparisons are paired."""
        return held_out_windows(self.store.held_out, sequences, length, seed)

    def progress(self, total: int, unit: str = "tokens") -> Progress:
        return Progress(self.title, total, unit)
