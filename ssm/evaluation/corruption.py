"""Accuracy on images in which noise replaces a region (bn Tables 1 and 3)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl
from scipy.special import ndtri

from ssm.base.seeds import derived_seed
from ssm.data.tasks.draws import Draws
from ssm.evaluation.altered import Altered
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.registry import MEASURES
from ssm.specs.measurements.corruption import Corruption

POOL = 1024  # number of training images from which pixels are taken
HALF = 2.0**-54  # half of the step between uniform numbers; adding it avoids 0


class Corrupted(Altered):
    """Each variant is one draw of one noise."""

    spec: Corruption

    def variants(self) -> tuple[np.ndarray, np.ndarray]:
        count = len(self.spec.noises) * self.spec.draws
        return np.tile(np.arange(self.spec.examples), count), np.repeat(np.arange(count), self.spec.examples)

    def replacements(self, examples: np.ndarray, variants: np.ndarray) -> np.ndarray:
        pixels = np.empty((len(examples), *self.images.shape[1:]), np.float32)
        for variant in np.unique(variants).tolist():
            rows = variants == variant
            noise, draw = self.noise_and_draw(variant)
            make = {"normal": self._normal, "training": self._training}[noise]
            pixels[rows] = make(Draws(self.seed, f"{noise}/{draw}", examples[rows]))
        return pixels

    def noise_and_draw(self, variant: int) -> tuple[str, int]:
        """The noise of a variant, and the number of its draw."""
        noise, draw = divmod(variant, self.spec.draws)
        return self.spec.noises[noise], draw

    def _normal(self, draws: Draws) -> np.ndarray:
        """N(0, 1), by inversion of the distribution function."""
        P, C = self.images.shape[1:]
        return ndtri(draws.uniform("values", P * C) + HALF).reshape(-1, P, C)

    def _training(self, draws: Draws) -> np.ndarray:
        """Pixels at the same place of training images, each from another random image."""
        P = self.images.shape[1]
        return self.pool[draws.integers("images", len(self.pool), P), np.arange(P)]

    @cached_property
    def pool(self) -> np.ndarray:
        """The training images from which pixels are taken: (n, P, C)."""
        return self.train.pixels(np.arange(min(POOL, self.train.spec.examples)))


@MEASURES.function
def corruption(spec: Corruption, ctx: EvaluationContext) -> pl.DataFrame:
    """Whether the right class is predicted, by image, region, noise and draw, in the schema Corruption.table."""
    altered = Corrupted(spec, ctx, derived_seed(spec.seed, "corruption", ctx.seed))
    variants = [altered.noise_and_draw(variant) for variant in altered.variant.tolist()]
    unchanged = altered.region == 0
    return altered.table(
        Corruption.table,
        noise=["none" if clean else noise for clean, (noise, _) in zip(unchanged, variants, strict=True)],
        draw=[draw for _, draw in variants],
        correct=altered.predictions(ctx) == altered.labels[altered.example],
    )
