"""Pixels: an image as a sequence of values, followed by a class token."""

from __future__ import annotations

from typing import Any

import numpy as np

from ssm.base.errors import DataError
from ssm.data.images import read_images
from ssm.data.store import TokenStore
from ssm.data.tasks.base import Answers, Examples, Generator
from ssm.specs.tasks.base import Split
from ssm.specs.tasks.pixels import PixelsTask


class Pixels(Generator, kind="pixels"):
    """Example number i is image number i of its split; nothing is random."""

    spec: PixelsTask

    def __init__(self, spec: Any, split: Split, seed: int, store: TokenStore):
        super().__init__(spec, split, seed, store)
        self.images = read_images(spec.images, split)
        if split == "train" and spec.examples > len(self.images):
            available = f"{spec.images.kind} has {len(self.images)} training images"
            raise DataError(f"{spec.name}: {available}, but the task asks for {spec.examples}")

    def make(self, indices: np.ndarray) -> Examples:
        values = with_class_token(self.pixels(indices))
        B, N = values.shape[:2]
        tokens = np.zeros((B, N + 1), np.int64)
        tokens[:, -1] = self.labels(indices)
        target_mask = np.zeros((B, N), bool)
        target_mask[:, -1] = True
        return Examples(
            tokens,
            target_mask,
            Answers(
                example=np.arange(B),
                start=np.full(B, N - 1),
                stop=np.full(B, N),
                length=np.full(B, N - 1),
                group=tokens[:, -1],
                difficulty=np.full(B, np.nan),
            ),
            values=values,
        )

    def labels(self, indices: np.ndarray) -> np.ndarray:
        """The classes of (B,) images: (B,) int64."""
        return self.images.labels[self._there(indices)]

    def pixels(self, indices: np.ndarray) -> np.ndarray:
        """The values that a model reads for (B,) images: (B, P, C) float32, standardized."""
        source = self.spec.images
        shares = self.images.stored[self._there(indices)].astype(np.float32) / source.highest  # (B, P, C)
        pixels = (shares - np.array(source.mean, np.float32)) / np.array(source.deviation, np.float32)
        return pixels[:, ::-1] if self.spec.order == "backwards" else pixels

    def _there(self, indices: np.ndarray) -> np.ndarray:
        if len(indices) and int(indices.max()) >= len(self.images):
            available = f"{self.spec.images.kind} has {len(self.images)} {self.split} images"
            raise DataError(f"{self.spec.name}: {available}; there is no image {int(indices.max())}, counted from 0")
        return indices


def with_class_token(pixels: np.ndarray) -> np.ndarray:
    """(B, P, C) -> (B, P + 1, C + 1). The last channel marks the class token, which is the last of the sequence."""
    B, P, C = pixels.shape
    values = np.zeros((B, P + 1, C + 1), np.float32)
    values[:, :P, :C] = pixels
    values[:, P, C] = 1
    return values
