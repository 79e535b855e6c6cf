"""Labeled images, read from their sources' files and decoded on demand."""

from __future__ import annotations

import gzip
import importlib.util
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ssm.base.errors import DataError, first_line
from ssm.base.paths import home_expanded
from ssm.base.seeds import numpy_generator
from ssm.specs.images import Cifar10, Digits, Images
from ssm.specs.tasks.base import Split

SIDE = 32  # pixels: height and width of a CIFAR-10 image
FILES = {"train": "data_batch_[1-5].bin", "test": "test_batch.bin"}  # of the binary archive
PICKLES = ("data_batch_[1-5]", "test_batch", "batches.meta", "cifar-10-python.tar.gz")  # of the archive for Python
WANTED = "the hub's Parquet files (uoft-cs/cifar10: train-*.parquet, test-*.parquet) or the binary archive's, unpacked"
WANTED += " (cifar-10-binary.tar.gz: data_batch_1.bin ... test_batch.bin)"


class Stored(Protocol):
    """The pixels of many images."""

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """(n,) rows -> (n, P, C) uint8: pixels in row-major order, colors last."""


@dataclass(frozen=True)
class LabelledImages:
    """The images of one split."""

    labels: np.ndarray  # (n,) int64
    stored: Stored

    def __len__(self) -> int:
        return len(self.labels)


@lru_cache(8)
def read_images(spec: Images, split: Split) -> LabelledImages:
    """The images of a split.

    Raises:
        DataError: scikit-learn is not installed, or the user's files are missing or have another content.
    """
    return READERS[spec.kind](spec, split)


def _digits(spec: Digits, split: Split) -> LabelledImages:
    found = importlib.util.find_spec("sklearn")  # an import would take a second
    if found is None or found.origin is None:
        raise DataError("digits: need scikit-learn, which is not installed: pip install '.[workflow]' in the clone")
    path = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    try:
        with gzip.open(path, "rt") as file:
            table = np.loadtxt(file, np.uint8, delimiter=",")  # (1797, 65): pixels in row-major order, then the digit
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({first_line(error)})") from error
    order = numpy_generator(spec.held_out_seed, "held_out").permutation(len(table))
    rows = table[order[: spec.training] if split == "train" else order[spec.training :]]
    return LabelledImages(rows[:, -1].astype(np.int64), np.ascontiguousarray(rows[:, :-1, None]))


def _cifar10(spec: Cifar10, split: Split) -> LabelledImages:
    folder = home_expanded(spec.folder)
    try:
        tables = sorted(folder.rglob(f"{split}-*.parquet"))
        if tables:
            return _parquet(tables)
        binaries = sorted(folder.rglob(FILES[split]))
        if binaries:
            return _binary(binaries)
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror or error})") from error
    pickles = next((path for name in PICKLES for path in folder.rglob(name)), None)
    if pickles is not None:
        raise DataError(f"{pickles}: is a pickle of the archive for Python; ssm never opens pickles. Use {WANTED}")
    raise DataError(f"{folder}: holds no {split} images of CIFAR-10; put {WANTED} there")


def _binary(paths: list[Path]) -> LabelledImages:
    """Records of a label and three color planes, each in row-major order."""
    record = 1 + 3 * SIDE * SIDE
    parts = []
    for path in paths:
        content = np.fromfile(path, np.uint8)
        if not len(content) or len(content) % record:
            raise DataError(f"{path}: {len(content)} bytes; expected whole records of {record} bytes, as in CIFAR-10")
        parts.append(content.reshape(-1, record))
        _check_labels(parts[-1][:, 0], path)
    rows = np.concatenate(parts)
    planes = rows[:, 1:].reshape(len(rows), 3, SIDE * SIDE)
    return LabelledImages(rows[:, 0].astype(np.int64), planes.transpose(0, 2, 1))


def _parquet(paths: list[Path]) -> LabelledImages:
    """Tables with the columns `img` (the bytes of a PNG file) and `label`."""
    labels, images = [], []
    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                table = file.read(columns=["img", "label"])
            found = table["label"].to_numpy()
            packed = [row["bytes"] for row in _rows(table["img"])]
        except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise DataError(f"{path}: expected images in the columns img and label ({first_line(error)})") from error
        _check_labels(found, path)
        labels.append(found.astype(np.int64))
        images += [(path, content) for content in packed]
    return LabelledImages(np.concatenate(labels), PngImages(images))


def _rows(column: pa.ChunkedArray) -> Iterator[dict[str, Any]]:
    for chunk in column.chunks:
        yield from chunk.to_pylist()


class PngImages:
    """Images as PNG files in memory."""

    def __init__(self, packed: list[tuple[Path, bytes]]):
        self.packed = packed

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([_decoded(*self.packed[row]) for row in rows.tolist()])


def _decoded(path: Path, content: bytes) -> np.ndarray:
    """(P, C) uint8."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            if image.size != (SIDE, SIDE):
                raise DataError(
                    f"{path}: holds an image of {image.size[0]} x {image.size[1]} pixels, not {SIDE} x {SIDE}"
                )
            return np.asarray(image.convert("RGB")).reshape(SIDE * SIDE, 3)
    except (OSError, TypeError, ValueError, UnidentifiedImageError) as error:
        raise DataError(f"{path}: holds an image that cannot be read ({first_line(error)})") from error


def _check_labels(labels: np.ndarray, path: Path) -> None:
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(Cifar10.classes):
        raise DataError(f"{path}: holds labels from {labels.min()} to {labels.max()}; CIFAR-10's are 0 to 9")


READERS: dict[str, Any] = {"digits": _digits, "cifar10": _cifar10}
