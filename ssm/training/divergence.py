"""The last good weights of a run that diverges. They depend on its spec, but not on the clock."""

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
    """Keeps the weights of every tenth of a run, the last two at a time.

    A run that diverges at step d returns to the last kept weights that are at least PATIENCE steps older than d. The
    loss may have risen for that long before the run counts as diverged. Checkpoints cannot replace them: these are due
    by the clock, so two runs of one spec would end with different weights.
    """

    def __init__(self, folder: Path, run: RunSpec, origin: str, steps: int):
        self.folder, self.run, self.origin = folder / "good", run, origin
        self.stride = max(PATIENCE, math.ceil(steps / 10))

    def due(self, step: int) -> bool:
        """Whether to keep the weights of `step`."""
        return step % self.stride == 0

    def keep(self, weights: dict[str, Tensor], step: int) -> None:
        """Keep the weights of `step`, and drop all but the last two."""
        save_weights(self._path(step), weights, self.run, step, self.origin)
        self._path(step - 2 * self.stride).unlink(missing_ok=True)

    def restore(self, model: TrainableModel, diverged_at: int) -> int:
        """Load the last good weights into `model` and return their step, 0 if none are old enough."""
        step = max(0, diverged_at - PATIENCE) // self.stride * self.stride
        if step:
            tensors, _ = load_tensors(self._path(step))
            load_weights(model, tensors, str(self._path(step)))
        return step

    def forget(self) -> None:
        """Delete the kept weights after a run without divergence."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, step: int) -> Path:
        return self.folder / f"{step}.safetensors"
