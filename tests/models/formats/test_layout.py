"""A layout moves numbers without changing them. `take` is the inverse of `put`."""

from __future__ import annotations

import pytest
import torch

from ssm.models.formats.layout import Layout

T = torch.arange(2 * 3 * 4 * 5).view(24, 5).float()


def put(layout: Layout, theirs: torch.Tensor, shape: tuple[int, ...], sizes: dict[str, int], **picks: tuple[int, ...]):
    target = torch.full(shape, torch.nan)
    layout.put(target, theirs, sizes, picks)
    assert torch.equal(layout.take(target, sizes, picks), theirs)
    assert layout.their_shape(shape, sizes) == tuple(theirs.shape)
    return target


def test_interleaved_heads() -> None:
    """q, k, v of head 0, then q, k, v of head 1 -> q of all heads, then k, then v."""
    got = put(Layout("(h qkv k) d -> (qkv h k) d"), T, (24, 5), {"h": 2, "qkv": 3})
    rows = [0, 1, 2, 3, 12, 13, 14, 15, 4, 5, 6, 7, 16, 17, 18, 19, 8, 9, 10, 11, 20, 21, 22, 23]
    assert torch.equal(got, T[rows])


def test_dimensions_of_size_one() -> None:
    assert torch.equal(put(Layout("c 1 k -> c k"), T[:, None], (24, 5), {}), T)
    assert torch.equal(put(Layout("1 1 d -> d"), T[None, :1], (5,), {}), T[0])


def test_transposed_and_picked() -> None:
    """Our entry i along an axis is their entry picks[i]."""
    assert torch.equal(put(Layout("a b -> b a"), T, (5, 24), {}), T.T)
    got = put(Layout("(m r) d -> d (m r)"), T, (5, 24), {"m": 3}, m=(2, 0, 1))
    assert torch.equal(got, T.view(3, 8, 5)[[2, 0, 1]].flatten(0, 1).T)
    got = put(Layout("d (m r) -> m r d"), T.T.contiguous(), (3, 8, 5), {}, m=(1, 2, 0))
    assert torch.equal(got, T.view(3, 8, 5)[[1, 2, 0]])


@pytest.mark.parametrize(
    ("shape", "sizes"), [((24, 5), {}), ((24, 5), {"h": 5, "qkv": 3}), ((24,), {"h": 2, "qkv": 3})]
)
def test_shapes_that_do_not_match(shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="does not match the pattern"):
        Layout("(h qkv k) d -> (qkv h k) d").their_shape(shape, sizes)
