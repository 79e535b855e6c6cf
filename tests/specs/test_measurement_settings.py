"""Impossible settings of measurements: one line with the key and the expected value."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from small import model_spec

from ssm.base.discovery import RegistryError
from ssm.base.errors import ConfigError
from ssm.specs.measurements import SPECS
from ssm.specs.measurements.length_class import LengthClass
from ssm.specs.measurements.position_loss import PositionLoss

COPY = {"name": "copy", "task": "copy", "alphabet": 5, "mix": [{"shortest": 4, "longest": 7}]}
FIT = {"sizes": [1, 3], "windows": [1.5], "horizons": [2.0]}
SCAN = {"formats": ["float32"], "arithmetics": ["loop"], "halvings": [2, 5], "shares": [1.0]}


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("position_loss", {"length": 64, "sequences": 4_000_000}, "sequences: expected a number up to 100000"),
        ("position_loss", {"length": 32, "sequences": 4, "shuffled": 32}, "4 windows of 32 tokens have no chunks of"),
        ("position_loss", {"length": 64, "sequences": 1, "shuffled": 32}, "1 windows of 64 tokens have no chunks of"),
        ("context_loss", {"length": 64, "shortest": 12}, "shortest: expected a power of two, got 12"),
        ("context_loss", {"length": 63, "shortest": 16}, "length 63: expected at least 4 times the shortest context"),
        ("validation_loss", {"length": 40, "context": 16}, "length 40: expected a multiple of the context, 16"),
        ("accuracy", {"task": COPY, "lengths": [5, 3]}, "lengths: must ascend"),
        ("accuracy", {"task": COPY, "lengths": [3, 3]}, "3 is given twice"),
        ("accuracy", {"task": COPY, "lengths": []}, "lengths: expected at least 1 entry"),
        ("accuracy", {"task": COPY, "examples": 0}, "examples: expected a number above 0"),
        ("cost", {"models": [model_spec()], "vocab_size": 9, "lengths": [9, 8]}, r"lengths: must ascend, got \[9, 8\]"),
        ("corruption", {"regions": [[5, 5]]}, r"\[5, 5\] has no pixels"),
        ("corruption", {"regions": []}, "at least 1 entry"),
        ("smoothness", {"length": 1}, "length: expected a number from 2 on, got 1"),
        ("corruption", {"regions": [[0, 2], [0, 2]]}, "is given twice"),
        ("length_class", {"of": {"length": 64}, "context": 8, "lengths": [16, 1]}, "expected powers of two.*, got 1"),
        ("length_class", {"of": {"length": 64}, "context": 8, "lengths": [48]}, "expected powers of two.*, got 48"),
        ("extrapolation_error", FIT | {"horizons": [0.5, 2.0]}, r"horizons must be above 1, .*, got 0\.5"),
        ("extrapolation_error", FIT | {"sizes": [1, 65]}, "sizes: a fit to 64 points has at most as many exponentials"),
        ("extrapolation_error", FIT | {"descent_sizes": [1, 2]}, "descent_sizes: 2 is not in sizes"),
        ("extrapolation_error", FIT | {"noises": [1e-3, 0.0010000001]}, r"noises: two are 0\.001 to six digits"),
        ("overflow", SCAN | {"shares": [1.0, 4.0]}, r"shares: a weight 1 - 4 \* 0.25 is not above 0"),
        ("overflow", SCAN | {"halvings": [2, 20], "lengths": 2}, r"lengths: 2 \* 2\^20 is more than 1,048,576 steps"),
    ],
)
def test_impossible_settings_are_refused(kind: str, content: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SPECS[kind].parse(content, "tests")


def test_the_largest_possible_settings_are_accepted() -> None:
    SPECS["overflow"].parse(SCAN | {"halvings": [2, 20], "lengths": 1}, "tests")
    SPECS["extrapolation_error"].parse(FIT | {"sizes": [64]}, "tests")


def test_the_default_of_a_later_field_does_not_change_the_id() -> None:
    curve = PositionLoss(length=64)
    assert "shuffled" not in curve.content()
    assert "lengths" not in LengthClass(of=curve, context=8).content()


def test_a_copied_spec_whose_table_has_the_name_of_another_kind_is_refused() -> None:
    said = "tests/specs/.*: the table of Copied is 'position_loss', expected its kind 'copied'"
    with pytest.raises(RegistryError, match=said):

        class Copied(PositionLoss):
            kind: Literal["copied"] = "copied"  # type: ignore[assignment]
            __module__ = "tests.specs.copied"
