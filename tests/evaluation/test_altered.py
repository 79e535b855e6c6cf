"""Corruption and target attack: replaced pixels, their replacements, and models with known predictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from evaluation.rigged import Rigged
from plan.mini import figure, write_config
from small import make_task
from torch import Tensor

from ssm.base.errors import ConfigError
from ssm.data.store import TokenStore
from ssm.evaluation.attack import Attacked, attack
from ssm.evaluation.corruption import Corrupted, corruption
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.plan import load_config, make_plan
from ssm.specs.measurements.attack import Attack
from ssm.specs.measurements.corruption import Corruption

REGIONS = [[0, 2], [3, 40], [60, 64]]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    folder = tmp_path_factory.mktemp("digits")
    return make_task(folder / "tokens", task="pixels", images={"kind": "digits"}, examples=1297)


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """CIFAR-10 with images of one gray, ten times the class; two test images and two training images in each class."""
    folder = tmp_path_factory.mktemp("flat")
    records = b"".join(bytes([label]) + bytes([10 * label]) * 3072 for label in [*range(10), *range(10)])
    (folder / "data_batch_1.bin").write_bytes(records)
    (folder / "test_batch.bin").write_bytes(records)
    return make_task(folder / "tokens", task="pixels", images={"kind": "cifar10", "folder": str(folder)}, examples=20)


def ctx(
    store: TokenStore, rule: Callable[[Tensor], Tensor] = lambda read: read[..., 0].long() * 0
) -> EvaluationContext:
    return EvaluationContext(Rigged(rule, 10), 3, store, CPU, "test")


def corrupted(store: TokenStore, **fields: Any) -> Corrupted:
    return Corrupted(Corruption.parse({"regions": REGIONS, "examples": 40} | fields, "tests"), ctx(store), 5)


def test_only_pixels_of_the_region_are_replaced(digits: TokenStore) -> None:
    altered = corrupted(digits)
    assert len(altered) == 40 * (1 + 3 * 2 * 3)
    every = np.arange(len(altered))
    pixels, images = altered.pixels(every), altered.images[altered.example]
    changed = pixels != images
    for region, (start, stop) in enumerate([(0, 0), *REGIONS]):
        own = changed[altered.region == region]
        assert not own[:, :start].any()
        assert not own[:, stop:].any()
        noise = np.array([altered.noise_and_draw(variant)[0] for variant in altered.variant[altered.region == region]])
        assert own[noise == "normal", start:stop].all()
    inputs, _ = altered.read(every, 0, 65)
    np.testing.assert_array_equal(inputs[:, :-1, 0], pixels[..., 0])
    assert inputs[:, -1].tolist() == [[0, 1]] * len(altered)
    some = np.array([700, 3, 90])
    np.testing.assert_array_equal(altered.read(some, 5, 33)[0], inputs[some, 5:33], "independent of the batch")


def test_noise_is_normal_or_from_training_images_at_the_same_place(digits: TokenStore) -> None:
    altered = corrupted(digits, regions=[[0, 63]], examples=200)
    rows = np.flatnonzero(altered.region == 1)
    pixels = altered.pixels(rows)[:, :63, 0]
    draws = [altered.noise_and_draw(variant) for variant in altered.variant[rows]]
    noise = np.array([name for name, _ in draws])
    normal, training = pixels[noise == "normal"], pixels[noise == "training"]
    assert normal.mean() == pytest.approx(0, abs=0.02)
    assert normal.std() == pytest.approx(1, abs=0.02)
    assert normal.min() < -3, "not clipped: the darkest pixel is -0.81"
    shown = altered.train.pixels(np.arange(1024))[:, :63, 0]
    np.testing.assert_array_equal(altered.pool[:, :63, 0], shown)
    assert all(set(training[:, place]) <= set(shown[:, place]) for place in range(63))
    np.testing.assert_allclose(training.mean(0), shown.mean(0), atol=0.2)
    np.testing.assert_allclose(training.std(0), shown.std(0), atol=0.2)
    together = np.corrcoef(training[:, 18], training[:, 26])[0, 1], np.corrcoef(shown[:, 18], shown[:, 26])[0, 1]
    assert abs(together[0]) < 0.12 < together[1], "pixels of the noise are independent"
    by_draw = [pixels[[of_row == ("normal", draw) for of_row in draws]] for draw in range(3)]
    assert not (by_draw[0] == by_draw[1]).any()
    assert not (by_draw[0][0] == by_draw[0][1]).any(), "two images have different noise"


def test_all_regions_share_a_draw(digits: TokenStore) -> None:
    altered = corrupted(digits, regions=[[0, 20], [10, 30]])
    first, second = (altered.pixels(np.flatnonzero(altered.region == region)) for region in (1, 2))
    np.testing.assert_array_equal(first[:, 10:20], second[:, 10:20])


def test_an_attack_takes_pixels_from_images_of_its_target(digits: TokenStore) -> None:
    altered = Attacked(Attack.parse({"regions": REGIONS, "examples": 30}, "tests"), ctx(digits), 5)
    assert len(altered) == 30 * (1 + 3 * 9)
    images = altered.test.pixels(np.arange(500))
    seen = set()
    for row in range(30, len(altered)):
        start, stop = REGIONS[altered.region[row] - 1]
        found, own = altered.pixels(np.array([row]))[0], altered.images[altered.example[row]]
        np.testing.assert_array_equal(np.delete(found, np.s_[start:stop], 0), np.delete(own, np.s_[start:stop], 0))
        donors = np.flatnonzero((images[:, start:stop] == found[start:stop]).all((1, 2)))
        target = altered.variant[row]
        assert target != altered.labels[altered.example[row]]
        assert target in altered.test.labels(donors)
        seen.add((altered.region[row], altered.example[row], target))
    assert len(seen) == 30 * 27, "every other class is the target once"


def gray(pixel: int) -> Callable[[Tensor], Tensor]:
    """Predict the class from the gray of one pixel; 0 if no class has this gray."""

    def rule(read: Tensor) -> Tensor:
        if read.shape[1] <= pixel:
            return read[..., 0].long() * 0
        number = (read[:, pixel, 0] * 0.2470 + 0.4914) * 255 / 10
        whole = (number - number.round()).abs() < 1e-3
        return torch.where(whole, number.round().long(), 0)[:, None].expand(read.shape[:2])

    return rule


def test_a_model_that_reads_one_pixel_fails_if_it_is_replaced(flat: TokenStore) -> None:
    regions = [[0, 32], [512, 544], [992, 1024]]
    spec = Corruption.parse({"regions": regions, "examples": 20, "draws": 2, "noises": ["normal"]}, "tests")
    for pixel, broken in ((1000, 1.0), (7, 0.0), (530, 0.52)):
        table = corruption(spec, ctx(flat, gray(pixel)))
        assert table.height == 20 * (1 + 3 * 2)
        assert table.filter(pl.col("pixels") == 0)["correct"].all()
        assert table.filter(pl.col("pixels") == 0)["position"].null_count() == 20
        for position in (0.0, 0.52, 1.0):
            rows = table.filter(pl.col("pixels") == 32, pl.col("position") == position)
            assert rows.height == 40
            assert rows["correct"].mean() == (0.1 if position == broken else 1.0), "it predicts class 0 for noise"


def test_an_attack_on_the_pixel_that_is_read_succeeds(flat: TokenStore) -> None:
    spec = Attack.parse({"regions": [[0, 256], [768, 1024]], "examples": 10}, "tests")
    for pixel, read in ((1000, 1.0), (7, 0.0)):
        table = attack(spec, ctx(flat, gray(pixel)))
        assert table.height == 10 * 9 * 3
        assert set(table.group_by("target").len()["len"]) == {27}
        for position in (0.0, 1.0):
            success = table.filter(pl.col("pixels") == 256, pl.col("position") == position)["success"]
            assert success.mean() == (1.0 if position == read else 0.0)
        assert not table.filter(pl.col("pixels") == 0)["success"].any()


def test_a_wrong_prediction_without_an_attack_is_a_success_of_one_target(digits: TokenStore) -> None:
    spec = Attack.parse({"regions": [[62, 64]], "examples": 50}, "tests")
    table = attack(spec, ctx(digits, lambda read: torch.full(read.shape[:2], 4)))
    clean = table.filter(pl.col("pixels") == 0)
    fours = Attacked(spec, ctx(digits), 5).labels == 4
    assert clean["success"].sum() == 50 - fours.sum()
    assert set(clean.filter("success")["target"]) == {4}
    assert set(table["position"]) == {None, 1.0}, "the last region has the position 1"


@pytest.mark.parametrize(
    ("data", "region", "said"),
    [
        ("digits", [60, 65], r"\[60, 65\] is not a part of an image of 64 pixels"),
        ("digits", [0, 64], r"\[0, 64\] is not a part of an image of 64 pixels"),
        ("text", [0, 2], r"replaces pixels, and 'text' has none; use it with the task 'pixels'"),
    ],
)
def test_a_region_must_be_a_part_of_the_image(data: str, region: list[int], said: str, tmp_path: Path) -> None:
    folder = write_config(tmp_path / "config")
    arms = {"base": {"label": "B", "training": "pretrain", "override": {"context": 65, "batch_tokens": 130}}}
    figure(folder, "lg_fig5", data=data, arms=arms, measurements=[{"kind": "attack", "regions": [region]}])
    with pytest.raises(ConfigError, match=said):
        make_plan(load_config(folder, figures=["lg_fig5"]))
