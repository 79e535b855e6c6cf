"""Pieces of a split, and its division into a training part and a held-out part."""

from __future__ import annotations

import numpy as np
import pytest

from ssm.data.pieces import Pieces, divide
from ssm.data.store import TokenSplit


def split(sizes: list[int]) -> TokenSplit:
    """Documents of these sizes; every token is its own position."""
    ends = np.cumsum(sizes)
    tokens = np.arange(ends[-1], dtype=np.uint32)
    return TokenSplit("text", [tokens], np.concatenate([[0], ends[:-1]]), int(ends[-1]))


def read(part: TokenSplit) -> list[int]:
    return part.read(0, part.n_tokens).tolist()


def test_pieces_are_read_one_after_another() -> None:
    found = Pieces(split([10, 20, 30]), np.array([[2, 5], [8, 12], [20, 20], [40, 60]]), "pieces")
    expected = [*range(2, 5), *range(8, 12), *range(40, 60)]
    assert read(found) == expected
    for start in range(len(expected)):
        for length in range(1, len(expected) - start + 1):
            assert found.read(start, length).tolist() == expected[start : start + length]
    assert found.rows(np.array([5, 0, 2]), 3).tolist() == [expected[5:8], expected[0:3], expected[2:5]]
    assert [expected[start] for start in found.documents] == [2, 8, 10, 40]  # starts of pieces and documents
    assert found.document_starts(3, 5).tolist() == [True, False, True, False, True]
    for start, length in ((-1, 2), (len(expected) - 1, 2)):
        with pytest.raises(IndexError, match=f"tokens {start} to"):
            found.read(start, length)


def test_empty_pieces_are_dropped() -> None:
    found = Pieces(split([10]), np.array([[3, 3]]), "pieces")
    assert (found.n_tokens, len(found.documents)) == (0, 0)
    assert found.rows(np.empty(0, np.int64), 4).shape == (0, 4)


@pytest.mark.parametrize(
    ("sizes", "tokens", "whole", "last"),
    [
        ([1000], 300, 0, 300),  # a single document
        ([1000, 20, 20, 20], 106, 0, 106),  # one is much longer than the others
        ([100] * 10, 100, 1, 0),
        ([30] * 38, 114, 4, 0),  # the last one does not fit, and is short
        ([100, 100, 100], 150, 1, 50),  # the next one does not fit, and is long
        ([100, 100], 100, 1, 0),
        ([40, 0, 40, 0, 40], 60, 1, 20),  # documents without tokens do not count
        ([10] * 9, 45, 4, 5),  # a short one that does not fit would exceed half
    ],
)
def test_short_documents_are_held_out_whole(sizes: list[int], tokens: int, whole: int, last: int) -> None:
    gap, of = 5, split(sizes)
    for seed in range(5):
        found = divide(of, tokens, gap, seed)
        assert (found.whole, found.last, found.documents) == (whole, last, sum(size > 0 for size in sizes))
        trained, held = read(found.train), read(found.held_out)
        assert len(held) >= tokens
        assert (len(held) == tokens) == bool(last or whole * sizes[0] == tokens)
        assert not set(trained) & set(held)
        unread = sorted(set(range(of.n_tokens)) - set(trained) - set(held))
        assert len(unread) == found.gap == (gap if last else 0)
        if last:  # the cut document: training part, gap, held-out part
            stop = next(stop for stop in np.cumsum(sizes).tolist() if stop > unread[-1])
            assert unread == list(range(stop - last - gap, stop - last))
            assert set(range(stop - last, stop)) <= set(held)


def test_the_held_out_part_depends_on_the_seed() -> None:
    found = [read(divide(split([30] * 38), 100, 7, seed).held_out) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_a_gap_does_not_leave_its_document() -> None:
    found = divide(split([50, 50]), 45, 20, seed=1)
    assert (found.last, found.gap, found.train.n_tokens) == (45, 5, 50)
