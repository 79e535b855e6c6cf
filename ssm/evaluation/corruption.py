"""Images in which noise stands for some pixels (bn Tables 1 and 3)."""

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

POOL = 1024  # training images that pixels are taken from
HALF = 2.0**-54  # of a step between uniform numbers, none of which is then 0


class Corrupted(Altered):
    """A variant is a noise, and which draw of it."""

    spec: Corruption

    def variants(self) -> tuple[np.ndarray, np.ndarray]:
        count = len(self.spec.noises) * self.spec.draws
        return np.tile(np.arange(self.spec.examples), count), np.repeat(np.arange(count), self.spec.examples)

    def standing_in(self, examples: np.ndarray, variants: np.ndarray) -> np.ndarray:
        found = np.empty((len(examples), *self.images.shape[1:]), np.float32)
        for variant in np.unique(variants).tolist():
            rows = variants == variant
            noise, draw = self.named(variant)
            make = {"normal": self._normal, "training": self._training}[noise]
            found[rows] = make(Draws(self.seed, f"{noise}/{draw}", examples[rows]))
        return found

    def named(self, variant: int) -> tuple[str, int]:
        """A variant's noise, and the number of its draw."""
        noise, draw = divmod(variant, self.spec.draws)
        return self.spec.noises[noise], draw

    def _normal(self, draws: Draws) -> np.ndarray:
        """N(0, 1), by the inverse of its distribution function."""
        P, C = self.images.shape[1:]
        return ndtri(draws.uniform("values", P * C) + HALF).reshape(-1, P, C)

    def _training(self, draws: Draws) -> np.ndarray:
        """Every pixel from a training image of its own, at the same place."""
        P = self.images.shape[1]
        return self.pool[draws.integers("images", len(self.pool), P), np.arange(P)]

    @cached_property
    def pool(self) -> np.ndarray:
        """The training images whose pixels these are: (n, P, C)."""
        return self.train.pixels(np.arange(min(POOL, self.train.spec.examples)))


@MEASURES.function
def corruption(spec: Corruption, ctx: EvaluationContext) -> pl.DataFrame:
    """Whether the right class wins, by image, region, noise and draw, in the schema Corruption.table."""
    altered = Corrupted(spec, ctx, derived_seed(spec.seed, "corruption", ctx.seed))
    named = [altered.named(variant) for variant in altered.variant.tolist()]
    whole = altered.region == 0
    return altered.table(
        Corruption.table,
        noise=["none" if clean else noise for clean, (noise, _) in zip(whole, named, strict=True)],
        draw=[draw for _, draw in named],
        correct=altered.winners(ctx) == altered.labels[altered.example],
    )
