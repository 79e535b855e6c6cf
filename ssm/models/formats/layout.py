"""Rearrange a tensor of another library into ours, and back: a pattern of named axes, used in both directions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

HELPER = True

Sizes = Mapping[str, int]  # name of an axis -> its size
Picks = Mapping[str, tuple[int, ...]]  # name of an axis -> order: our entry i is their entry order[i]


@dataclass(frozen=True)
class Layout:
    """Theirs -> ours, as in "(h q k) d -> (q h k) d": axes in brackets form one dimension, 1 is a dimension of size 1.

    Both sides name the same axes. Numbers move, but do not change. In each of our dimensions, all axes except one need
    a size.
    """

    pattern: str

    def their_shape(self, ours: tuple[int, ...], sizes: Sizes) -> tuple[int, ...]:
        """The shape of their tensor, computed from the shape of ours.

        Raises:
            ValueError: our shape does not match the pattern.
        """
        axes = self._axes(ours, sizes)
        return tuple(prod(axes[name] for name in group) for group in self._sides()[0])

    def put(self, target: Tensor, theirs: Tensor, sizes: Sizes, picks: Picks) -> None:
        """Copy their tensor into ours, which must be contiguous."""
        left, right = self._names()
        axes = self._axes(tuple(target.shape), sizes)
        theirs = theirs.reshape([axes[name] for name in left])
        for name, order in picks.items():
            if name in left:
                theirs = theirs.index_select(left.index(name), torch.tensor(order))
        target.view([axes[name] for name in right]).copy_(theirs.permute([left.index(name) for name in right]))

    def take(self, ours: Tensor, sizes: Sizes, picks: Picks) -> Tensor:
        """Their tensor, made from ours."""
        left, right = self._names()
        axes = self._axes(tuple(ours.shape), sizes)
        theirs = ours.reshape([axes[name] for name in right]).permute([right.index(name) for name in left])
        for name, order in picks.items():
            if name in left:
                theirs = theirs.index_select(left.index(name), torch.tensor(order).argsort())
        return theirs.reshape(self.their_shape(tuple(ours.shape), sizes))

    def _sides(self) -> tuple[list[list[str]], list[list[str]]]:
        """The axes of each dimension, of theirs and of ours."""
        left, right = (re.findall(r"\([^)]*\)|\S+", side) for side in self.pattern.split("->"))
        return _axes_by_group(left), _axes_by_group(right)

    def _names(self) -> tuple[list[str], list[str]]:
        left, right = ([name for group in side for name in group] for side in self._sides())
        return left, right

    def _axes(self, ours: tuple[int, ...], sizes: Sizes) -> dict[str, int]:
        """The size of every axis, computed from our shape."""
        right = self._sides()[1]
        if len(right) != len(ours):
            raise ValueError(f"shape {ours} does not match the pattern {self.pattern}")
        axes: dict[str, int] = {}
        for group, size in zip(right, ours, strict=True):
            unknown = [name for name in group if name not in sizes]
            known = prod(sizes[name] for name in group if name in sizes)
            if len(unknown) > 1 or size % known or (not unknown and size != known):
                raise ValueError(f"shape {ours} does not match the pattern {self.pattern} with {dict(sizes)}")
            axes |= {name: sizes[name] for name in group if name in sizes}
            axes |= dict.fromkeys(unknown, size // known)
        return axes


def _axes_by_group(groups: list[str]) -> list[list[str]]:
    return [[name for name in group.strip("()").split() if name != "1"] for group in groups]
