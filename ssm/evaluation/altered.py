"""Predictions for test images in which a region of pixels is replaced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ssm.base.schema import Schema
from ssm.data.tasks.pixels import Pixels, with_class_token
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.evaluation.stream import segments
from ssm.models.logits import likeliest
from ssm.specs.measurements.of_images import OfImages
from ssm.specs.tasks.pixels import PixelsTask


class Altered(ABC):
    """Numbered sequences: first the unchanged test images, then all variants of each region.

    Attributes:
        regions: (R + 1, 2) pixels [start, stop) to replace; the first region is empty.
        region: (n,) number of the region of each sequence.
        example: (n,) number of the test image of each sequence.
        variant: (n,) number of the replacement of each sequence.
    """

    def __init__(self, spec: OfImages, ctx: EvaluationContext, seed: int):
        task = ctx.store.spec
        assert isinstance(task, PixelsTask)
        self.spec, self.seed, self.length = spec, seed, task.least_context
        self.test, self.train = Pixels(task, "test", seed, ctx.store), Pixels(task, "train", seed, ctx.store)
        self.images = self.test.pixels(np.arange(spec.examples))  # (E, P, C)
        self.labels = self.test.labels(np.arange(spec.examples))  # (E,)
        self.regions = np.array([(0, 0), *spec.regions])
        examples, variants = self.variants()
        R = len(spec.regions)
        self.region = np.concatenate([np.zeros(spec.examples, np.int64), np.repeat(np.arange(1, R + 1), len(examples))])
        self.example = np.concatenate([np.arange(spec.examples), np.tile(examples, R)])
        self.variant = np.concatenate([np.zeros(spec.examples, np.int64), np.tile(variants, R)])
        self.rows, self.values = np.empty(0, np.int64), np.empty((0, 0, 0), np.float32)  # cache of the last read

    @abstractmethod
    def variants(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the images and of their replacements in each region, two (n,) int64."""

    @abstractmethod
    def replacements(self, examples: np.ndarray, variants: np.ndarray) -> np.ndarray:
        """Replacements for all pixels of (n,) images: (n, P, C)."""

    def __len__(self) -> int:
        return len(self.region)

    def read(self, rows: np.ndarray, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Inputs [start, stop) of some sequences, (rows, stop - start, C + 1) float32. The targets are unused zeros."""
        if not np.array_equal(rows, self.rows):
            self.rows, self.values = rows, with_class_token(self.pixels(rows))
        inputs = torch.from_numpy(self.values[:, start:stop])
        return inputs, torch.zeros(inputs.shape[:2], dtype=torch.int64)

    def pixels(self, rows: np.ndarray) -> np.ndarray:
        """The pixels of some sequences: (rows, P, C)."""
        images = self.images[self.example[rows]]
        place = np.arange(images.shape[1])
        first, last = self.regions[self.region[rows]].T[:, :, None]
        replaced = (first <= place) & (place < last)  # (rows, P)
        return np.where(replaced[..., None], self.replacements(self.example[rows], self.variant[rows]), images)

    def predictions(self, ctx: EvaluationContext) -> np.ndarray:
        """The predicted class of each sequence: (n,) int64."""
        predicted = torch.zeros(len(self), dtype=torch.int64)
        with ctx.progress(len(self), self.length) as progress:
            for segment in segments(ctx, self, self.length):
                progress.advance(segment.targets.numel())
                if segment.stop == self.length:
                    predicted[segment.rows] = likeliest(ctx.model, segment.hidden[:, -1:])[:, 0].cpu()
        return np.asarray(ctx.total(predicted).numpy())

    def table(self, schema: Schema, rows: np.ndarray | None = None, **columns: np.ndarray | list[Any]) -> pl.DataFrame:
        """A row for each sequence (all, or only `rows`), with its image, its region, and `columns`.

        Positions are rounded to hundredths, so that regions of different sizes in the middle have the same position.
        """
        rows = np.arange(len(self)) if rows is None else rows
        start, stop = self.regions[self.region[rows]].T
        count = stop - start
        position = pl.Series(np.where(count > 0, start / (self.length - 1 - count), np.nan).round(2)).fill_nan(None)
        about = {"pixels": count, "position": position, "start": start, "example": self.example[rows]}
        return pl.DataFrame(about | columns).select(*schema.columns).cast(pl.Schema(schema.columns))
