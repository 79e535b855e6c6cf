"""The target attack: pixels of another class replace a region of an image (bn Figures 3 and 10)."""

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
    """Each variant is a target class."""

    spec: Attack

    def variants(self) -> tuple[np.ndarray, np.ndarray]:
        classes = np.arange(self.test.spec.vocab_size)
        examples, targets = np.nonzero(self.labels[:, None] != classes)
        return examples, targets

    def replacements(self, examples: np.ndarray, variants: np.ndarray) -> np.ndarray:
        pixels = np.empty((len(examples), *self.images.shape[1:]), np.float32)
        for target in np.unique(variants).tolist():
            rows = variants == target
            of_class = np.flatnonzero(self.test.images.labels == target)
            if not len(of_class):
                raise DataError(f"{self.test.spec.name}: no test image has the class {target}; is a file missing?")
            chosen = Draws(self.seed, f"target/{target}", examples[rows]).integers("image", len(of_class))[:, 0]
            pixels[rows] = self.test.pixels(of_class[chosen])
        return pixels


@MEASURES.function
def attack(spec: Attack, ctx: EvaluationContext) -> pl.DataFrame:
    """Whether the target class is predicted, by image, region and target, in the schema Attack.table."""
    altered = Attacked(spec, ctx, derived_seed(spec.seed, "attack", ctx.seed))
    predicted = altered.predictions(ctx)
    # An unchanged image is read once, and has a row for each target.
    examples, targets = altered.variants()
    rows = np.concatenate([examples, np.arange(spec.examples, len(altered))])
    target = np.concatenate([targets, altered.variant[spec.examples :]])
    return altered.table(Attack.table, rows, target=target, success=predicted[rows] == target)
