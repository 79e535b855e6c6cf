"""Images in which pixels of another class stand for some of theirs (bn Figures 3 and 10)."""

from __future__ import annotations

import numpy as np
import polars as pl

from ssm.base.errors import DataError
from ssm.base.seeds import derived_seed
from ssm.data.tasks.draws import Draws
from ssm.evaluation.altered import Altered
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.registry import MEASURES
from ssm.specs.measurements.attack import Attack


class Attacked(Altered):
    """A variant is the target class."""

    spec: Attack

    def variants(self) -> tuple[np.ndarray, np.ndarray]:
        classes = np.arange(self.test.spec.vocab_size)
        examples, targets = np.nonzero(self.labels[:, None] != classes)
        return examples, targets

    def standing_in(self, examples: np.ndarray, variants: np.ndarray) -> np.ndarray:
        found = np.empty((len(examples), *self.images.shape[1:]), np.float32)
        for target in np.unique(variants).tolist():
            rows = variants == target
            there = np.flatnonzero(self.test.images.labels == target)
            if not len(there):
                raise DataError(f"{self.test.spec.name}: no test image is of class {target}; is a file missing?")
            chosen = Draws(self.seed, f"target/{target}", examples[rows]).integers("image", len(there))[:, 0]
            found[rows] = self.test.pixels(there[chosen])
        return found


@MEASURES.function
def attack(spec: Attack, ctx: EvaluationContext) -> pl.DataFrame:
    """Whether the target class wins, by image, region and target, in the schema Attack.table."""
    altered = Attacked(spec, ctx, derived_seed(spec.seed, "attack", ctx.seed))
    winners = altered.winners(ctx)
    # An image as it is was read once, and is a row for every target.
    examples, targets = altered.variants()
    rows = np.concatenate([examples, np.arange(spec.examples, len(altered))])
    target = np.concatenate([targets, altered.variant[spec.examples :]])
    return altered.table(Attack.table, rows, target=target, success=winners[rows] == target)
