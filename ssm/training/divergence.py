"""What is left of a run that diverges: its last good weights, as a function of its spec and not of the clock."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

from torch import Tensor

from ssm.models.checkpoint import load_tensors, load_weights, save_weights
from ssm.models.trainable import TrainableModel
from ssm.specs.training import RunSpec
from ssm.training.metrics import PATIENCE


class LastGood:
    """Weights kept at ten steps of a run, the last two of them at a time.

    A run that diverges at step d goes back to the last of them that is at least PATIENCE steps older than d, because a
    loss may have been on its way up for so long before it is called diverged. Checkpoints would not do: they fall due
    by the clock, and two runs of one spec would end in different weights.
    """

    def __init__(self, folder: Path, run: RunSpec, origin: str, steps: int):
        self.folder, self.run, self.origin = folder / "good", run, origin
        self.stride = max(PATIENCE, math.ceil(steps / 10))

    def due(self, step: int) -> bool:
        """Whether the weights of `step` are to be kept."""
        return step % self.stride == 0

    def keep(self, weights: dict[str, Tensor], step: int) -> None:
        """Keep the weights of `step`, and drop all but the last two."""
        save_weights(self._path(step), weights, self.run, step, self.origin)
        self._path(step - 2 * self.stride).unlink(missing_ok=True)

    def restore(self, model: TrainableModel, diverged_at: int) -> int:
        """Put the last good weights into `model`; returns their step, 0 if none are old enough."""
        step = max(0, diverged_at - PATIENCE) // self.stride * self.stride
        if step:
            tensors, _ = load_tensors(self._path(step))
            load_weights(model, tensors, str(self._path(step)))
        return step

    def forget(self) -> None:
        """Delete what was kept: the run has ended well."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, step: int) -> Path:
        return self.folder / f"{step}.safetensors"
