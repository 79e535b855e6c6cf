"""Quantities of a sample: pieces are found verbatim and in order, and a key has the same value everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from claims.synthetic import claim, estimate, figure_task

from ssm.base.tables import write_table
from ssm.claims.estimate import Estimate, UndecidableError
from ssm.claims.statements import CONFIRMED, DEFINITION, REFUTED
from ssm.claims.verdict import judge
from ssm.figures.figure import FigureTask
from ssm.specs.measurements.sample import Sample

PIECES = [
    "Find it.",
    "The sky is blue.",
    "The key is {key}. {key} it is.",
    "The sky is blue.",
    "What is the key? {key}.",
]
TEXT = (
    "Find it.",
    " is blue. The sky is blue.",
    " The key is 123. 123 it is.",
    " The sky is blue.",
    " What is the key?",
    " 123.",
)
SHARE = {"kind": "piece_share", "pieces": PIECES}
DEPTH = {"kind": "piece_depth", "piece": "{key}.", "behind": "a", "before": "z"}


def task(folder: Path, quantity: dict[str, Any], *samples: tuple[str, ...], **expected: float) -> FigureTask:
    names = [f"sample-{number}" for number in range(len(samples))]
    for name, texts in zip(names, samples, strict=True):
        rows = [(place, f"piece {place}", len(text), text) for place, text in enumerate(texts)][::-1]
        frame = pl.DataFrame(rows, schema=Sample.table.columns, orient="row")
        write_table(frame, Sample.table, folder / f"{name}.parquet", {})
    return figure_task([claim(quantity, **expected)]).model_copy(update={"tables": tuple(names)})


def measured(folder: Path, quantity: dict[str, Any], *samples: tuple[str, ...]) -> Estimate:
    made = task(folder, quantity, *samples, above=0.5)
    return estimate(made, "", made.figure.claims[0].quantity, folder)


@pytest.mark.parametrize(
    ("old", "new", "share"),
    [
        ("", "", 1.0),
        ("Find it.", "Find  it.", 0.8),
        (" The sky is blue.", " The sky is grey.", 0.6),  # both
        (" 123 it is", " 124 it is", 0.8),  # the piece needs one key twice; the next piece may have another key
        (" 123.", " 124.", 0.8),
        ("key is 123. 123", "key is 1x3. 1x3", 0.8),
        ("?", "?  ", 0.8),
        ("What", "what", 0.8),
    ],
)
def test_a_changed_piece_is_not_found(tmp_path: Path, old: str, new: str, share: float) -> None:
    texts = tuple(text.replace(old, new) for text in TEXT) if old != " 123." else (*TEXT[:-1], new)
    found = measured(tmp_path, SHARE, texts)
    assert (found.value, found.low, found.high, found.interval.words()) == (share, share, share, "exact")


def test_pieces_are_found_in_order_and_verbatim(tmp_path: Path) -> None:
    assert measured(tmp_path, SHARE, (*TEXT[2:], *TEXT[:2])).value == 0.4
    assert measured(tmp_path, SHARE, TEXT[:3]).value == 0.6  # a repeated piece is not counted twice
    dots = {"kind": "piece_share", "pieces": ["a.c", "(", "{n}-{n}"]}
    assert measured(tmp_path, dots, ("abc ( 1-12",)).value == pytest.approx(2 / 3)  # "." matches only itself
    assert measured(tmp_path, dots, ("a.c ( 1-2",)).value == pytest.approx(2 / 3)


def test_a_changed_piece_refutes(tmp_path: Path) -> None:
    for texts, verdict in ((TEXT, CONFIRMED), (("find it.", *TEXT[1:]), REFUTED)):
        frame = judge(task(tmp_path, SHARE, texts, above=0.999), tmp_path)
        assert frame["verdict"].to_list() == [verdict]
        assert frame["sort"].to_list() == [DEFINITION]


@pytest.mark.parametrize(("text", "depth"), [("a7.xxz", 0), ("axx7.z", 1), ("axx7.xxz", 0.5), ("ax123.xxxz", 0.25)])
def test_depth_of_a_piece(tmp_path: Path, text: str, depth: float) -> None:
    found = measured(tmp_path, DEPTH, (text[:2], text[2:]))
    assert (found.value, found.low, found.high, found.interval.words()) == (depth, depth, depth, "exact")


def test_a_piece_at_another_depth_refutes(tmp_path: Path) -> None:
    for text, verdict in (("axx7.xxz", CONFIRMED), ("ax7.xxxz", REFUTED)):
        made = task(tmp_path, DEPTH, (text,), above=0.4, below=0.6)
        assert judge(made, tmp_path)["verdict"].to_list() == [verdict]


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([("axxz",)], r"does not have '{key}\.' at the expected place"),
        ([("a7.xx",)], "does not have 'z'"),
        ([("7.axxz",)], "does not have"),
        ([("a7.z",)], "no text around the piece"),
        ([], "the figure has 0 samples"),
        ([("a7.xxz",), ("a7.xxz",)], "the figure has 2 samples"),
    ],
)
def test_missing_pieces_and_samples_are_undecidable(tmp_path: Path, samples: list[tuple[str]], said: str) -> None:
    with pytest.raises(UndecidableError, match=said):
        measured(tmp_path, DEPTH, *samples)
