"""Pixels: images with the right values and order, from the package and from users' files."""

from __future__ import annotations

import importlib.util
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from small import make_task

from ssm.base.errors import ConfigError, DataError
from ssm.data import images
from ssm.data.batches import IGNORE_INDEX
from ssm.data.tasks import build_generator
from ssm.data.tasks.pixels import Pixels
from ssm.data.training_batches import training_batches
from ssm.specs.tasks import parse_data

DIGITS: dict[str, Any] = {"task": "pixels", "images": {"kind": "digits"}, "examples": 1297}
GENERATOR = np.random.default_rng(5)
SQUARES = GENERATOR.integers(0, 256, (7, 32, 32, 3), np.uint8)  # the images of small CIFAR-10 files
LABELS = np.array([3, 0, 9, 9, 1, 7, 2])


def generator(folder: Path, split: Any = "test", **content: Any) -> Pixels:
    store = make_task(folder, **(DIGITS | content))
    made = build_generator(store.spec, split, 1, store)  # type: ignore[arg-type]
    assert isinstance(made, Pixels)
    return made


def cifar10(folder: Path, **content: Any) -> dict[str, Any]:
    return {"images": {"kind": "cifar10", "folder": str(folder)}, "examples": 4} | content


def as_numbers(pixels: np.ndarray, spec: Any) -> np.ndarray:
    """The whole numbers behind standardized pixels."""
    shares = pixels.astype(np.float64) * np.array(spec.images.deviation) + np.array(spec.images.mean)
    return np.round(shares * spec.images.highest, 3)


def write_binary(folder: Path) -> None:
    """The format of cifar-10-binary.tar.gz: one byte for the label, then the red, green and blue planes."""
    folder.mkdir(parents=True)
    records = [
        bytes([label]) + square.transpose(2, 0, 1).tobytes() for label, square in zip(LABELS, SQUARES, strict=True)
    ]
    (folder / "data_batch_1.bin").write_bytes(b"".join(records[:3]))
    (folder / "data_batch_2.bin").write_bytes(records[3])
    (folder / "test_batch.bin").write_bytes(b"".join(records[4:]))


def png(square: np.ndarray) -> dict[str, Any]:
    file = io.BytesIO()
    Image.fromarray(square).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def write_parquet(folder: Path) -> None:
    """The format of uoft-cs/cifar10 on the hub: one row per image, with the bytes of a PNG file."""
    folder.mkdir(parents=True)
    for name, rows in (("train", slice(0, 4)), ("test", slice(4, 7))):
        pictures = pa.array(
            [png(square) for square in SQUARES[rows]], pa.struct({"bytes": pa.binary(), "path": pa.string()})
        )
        table = pa.table({"img": pictures, "label": pa.array(LABELS[rows], pa.int64())})
        pq.write_table(table, folder / f"{name}-00000-of-00001.parquet", row_group_size=2)


def test_the_digits_are_complete(tmp_path: Path) -> None:
    """Compared with scikit-learn's reader: both splits together have every image once. The constants are right."""
    from sklearn.datasets import load_digits

    theirs = load_digits()
    expected = np.concatenate([theirs.data, theirs.target[:, None]], 1)
    found, shares = [], []
    for split, count in (("train", 1297), ("test", 500)):
        made = generator(tmp_path / split, split)
        every = np.arange(count)
        found.append(
            np.concatenate([as_numbers(made.pixels(every), made.spec)[..., 0], made.labels(every)[:, None]], 1)
        )
        shares.append(found[-1][:, :-1] / 16)
        with pytest.raises(
            DataError, match=rf"digits has {count} {split} images; there is no image {count}, counted from 0"
        ):
            made.pixels(np.array([count]))
        assert np.bincount(made.labels(every)).min() > 0.07 * count
    np.testing.assert_array_equal(sorted(np.concatenate(found).tolist()), sorted(expected.tolist()))
    spec = made.spec.images
    assert (round(shares[0].mean(), 3), round(shares[0].std(), 3)) == (spec.mean[0], spec.deviation[0])


def test_a_sequence_is_the_pixels_and_a_class_token(tmp_path: Path) -> None:
    """Only the class token has a target, the class. Reading backwards reverses the pixels."""
    forwards, backwards = (generator(tmp_path / order, order=order) for order in ("forwards", "backwards"))
    indices = np.array([4, 0, 499])
    ahead, back = forwards.make(indices), backwards.make(indices)
    assert ahead.inputs.shape == (3, 65, 2)
    assert ahead.inputs.dtype == np.float32
    np.testing.assert_array_equal(ahead.inputs[:, -1], [[0, 1]] * 3)
    assert not ahead.inputs[:, :-1, -1].any()
    np.testing.assert_array_equal(ahead.inputs[:, :-1, :1], forwards.pixels(indices))
    np.testing.assert_array_equal(back.inputs[:, :-1], ahead.inputs[:, -2::-1])
    np.testing.assert_array_equal(ahead.targets[:, -1], forwards.labels(indices))
    assert (ahead.targets[:, :-1] == IGNORE_INDEX).all()
    np.testing.assert_array_equal(back.targets, ahead.targets)
    alone = forwards.make(indices[2:])
    np.testing.assert_array_equal(alone.inputs[0], ahead.inputs[2], "independent of the batch")


def test_an_epoch_has_every_training_image_once(tmp_path: Path) -> None:
    store = make_task(tmp_path / "tokens", **(DIGITS | {"examples": 50}))
    batches = training_batches(store, 70, 25, False, 3)
    seen = [batches.batch(step) for step in range(4)]
    assert seen[0].inputs.shape == (25, 70, 2)
    assert not seen[0].inputs[:, 65:].any(), "padding is zero"
    epochs = [{row.numpy().tobytes() for batch in pair for row in batch.inputs} for pair in (seen[:2], seen[2:])]
    assert len(epochs[0]) == 50
    assert epochs[0] == epochs[1]
    assert not np.array_equal(seen[0].inputs, seen[2].inputs), "epochs have different orders"


@pytest.mark.parametrize("write", [write_binary, write_parquet])
def test_cifar10_is_read_from_both_formats(write: Any, tmp_path: Path) -> None:
    write(tmp_path / "cifar" / "deep")
    for split, rows in (("train", slice(0, 4)), ("test", slice(4, 7))):
        made = generator(tmp_path / split, split, **cifar10(tmp_path / "cifar"))
        every = np.arange(rows.stop - rows.start)
        np.testing.assert_array_equal(as_numbers(made.pixels(every), made.spec), SQUARES[rows].reshape(-1, 1024, 3))
        np.testing.assert_array_equal(made.labels(every), LABELS[rows])
        np.testing.assert_array_equal(made.pixels(every[::-1]), made.pixels(every)[::-1])
        assert made.make(every).inputs.shape == (len(every), 1025, 4)


def test_changed_files_are_another_corpus(tmp_path: Path) -> None:
    write_binary(tmp_path / "cifar")
    (tmp_path / "cifar" / "cifar-10-binary.tar.gz").write_bytes(b"the archive beside its files")
    first = make_task(tmp_path / "one", **(DIGITS | cifar10(tmp_path / "cifar"))).manifest["corpus"]
    (tmp_path / "cifar" / "test_batch.bin").write_bytes(bytes(3073))
    assert make_task(tmp_path / "two", **(DIGITS | cifar10(tmp_path / "cifar"))).manifest["corpus"] != first


def broken(folder: Path, how: str) -> None:
    folder.mkdir()
    if how == "pickle":
        (folder / "data_batch_1").write_bytes(pickle.dumps({"data": [1], "labels": [2]}))
    elif how == "cut":
        (folder / "test_batch.bin").write_bytes(bytes(3072))
    elif how == "label":
        (folder / "test_batch.bin").write_bytes(bytes([10]) + bytes(3072))
    elif how == "column":
        pq.write_table(pa.table({"image": [1]}), folder / "test-00000-of-00001.parquet")
    elif how == "size":
        rows = {"img": [png(np.zeros((8, 8, 3), np.uint8))], "label": [1]}
        pq.write_table(pa.table(rows), folder / "test-00000-of-00001.parquet")
    elif how == "no picture":
        rows = {"img": [{"bytes": b"GIF89a", "path": None}], "label": [1]}
        pq.write_table(pa.table(rows), folder / "test-00000-of-00001.parquet")
    elif how == "no table":
        (folder / "test-00000-of-00001.parquet").write_bytes(b"PAR1")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            "pickle",
            r"data_batch_1: is a pickle of the archive for Python; ssm never opens pickles. Use the hub's Parquet",
        ),
        ("cut", r"test_batch.bin: 3072 bytes; expected whole records of 3073 bytes"),
        ("label", r"test_batch.bin: holds labels from 10 to 10; CIFAR-10's are 0 to 9"),
        ("column", r"test-00000-of-00001.parquet: expected images in the columns img and label"),
        ("size", r"test-00000-of-00001.parquet: holds an image of 8 x 8 pixels, not 32 x 32"),
        ("no picture", r"test-00000-of-00001.parquet: holds an image that cannot be read"),
        ("no table", r"test-00000-of-00001.parquet: expected images in the columns"),
        ("nothing", r"cifar: holds no test images of CIFAR-10; put the hub's Parquet files .* there"),
    ],
)
def test_other_files_are_refused_in_one_line(how: str, said: str, tmp_path: Path) -> None:
    broken(tmp_path / "cifar", how)
    spec = parse_data({"name": "x"} | DIGITS | cifar10(tmp_path / "cifar"), "tests")
    with pytest.raises(DataError, match=said) as caught:
        images.read_images(spec.images, "test").stored[np.array([0])]  # type: ignore[attr-defined]
    assert "\n" not in str(caught.value)


def test_more_examples_than_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="x: examples 1298: digits has 1297 training images"):
        parse_data({"name": "x"} | DIGITS | {"examples": 1298}, "x")
    write_binary(tmp_path / "cifar")
    with pytest.raises(DataError, match="small: cifar10 has 4 training images, but the task asks for 5"):
        generator(tmp_path / "tokens", "train", **cifar10(tmp_path / "cifar", examples=5))


def test_the_digits_without_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    images.read_images.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    spec = parse_data({"name": "x"} | DIGITS, "tests")
    with pytest.raises(DataError, match="digits: need scikit-learn, which is not installed: pip install"):
        images.read_images(spec.images, "train")  # type: ignore[attr-defined]
