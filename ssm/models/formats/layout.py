"""How one tensor of another library lies beside ours: a pattern of named axes, read in both directions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

HELPER = True

Sizes = Mapping[str, int]  # of named axes
Picks = Mapping[str, tuple[int, ...]]  # along a named axis, our i-th entry is their picks[i]-th


@dataclass(frozen=True)
class Layout:
    """Theirs -> ours, as in "(h q k) d -> (q h k) d": axes in brackets lie in one dimension, 1 is a dimension of one.

    The two sides name the same axes; data moves, no number changes. Of the axes in one of our dimensions all but one
    need a size.
    """

    pattern: str

    def their_shape(self, ours: tuple[int, ...], sizes: Sizes) -> tuple[int, ...]:
        """The shape of their tensor, from that of ours.

        Raises:
            ValueError: ours does not follow the pattern.
        """
        axes = self._axes(ours, sizes)
        return tuple(prod(axes[name] for name in group) for group in self._sides()[0])

    def put(self, target: Tensor, theirs: Tensor, sizes: Sizes, picks: Picks) -> None:
        """Write their tensor into ours, a contiguous one."""
        left, right = self._names()
        axes = self._axes(tuple(target.shape), sizes)
        theirs = theirs.reshape([axes[name] for name in left])
        for name, order in picks.items():
            if name in left:
                theirs = theirs.index_select(left.index(name), torch.tensor(order))
        target.view([axes[name] for name in right]).copy_(theirs.permute([left.index(name) for name in right]))

    def take(self, ours: Tensor, sizes: Sizes, picks: Picks) -> Tensor:
        """Their tensor, from ours."""
        left, right = self._names()
        axes = self._axes(tuple(ours.shape), sizes)
        theirs = ours.reshape([axes[name] for name in right]).permute([right.index(name) for name in left])
        for name, order in picks.items():
            if name in left:
                theirs = theirs.index_select(left.index(name), torch.tensor(order).argsort())
        return theirs.reshape(self.their_shape(tuple(ours.shape), sizes))

    def _sides(self) -> tuple[list[list[str]], list[list[str]]]:
        """The axes of each of their dimensions, and of ours."""
        left, right = (re.findall(r"\([^)]*\)|\S+", side) for side in self.pattern.split("->"))
        return _axes_by_group(left), _axes_by_group(right)

    def _names(self) -> tuple[list[str], list[str]]:
        left, right = ([name for group in side for name in group] for side in self._sides())
        return left, right

    def _axes(self, ours: tuple[int, ...], sizes: Sizes) -> dict[str, int]:
        """The size of every axis, from the shape of ours."""
        right = self._sides()[1]
        if len(right) != len(ours):
            raise ValueError(f"{ours} does not follow the pattern {self.pattern}")
        axes: dict[str, int] = {}
        for group, size in zip(right, ours, strict=True):
            unknown = [name for name in group if name not in sizes]
            known = prod(sizes[name] for name in group if name in sizes)
            if len(unknown) > 1 or size % known or (not unknown and size != known):
                raise ValueError(f"{ours} does not follow the pattern {self.pattern} with {dict(sizes)}")
            axes |= {name: sizes[name] for name in group if name in sizes}
            axes |= dict.fromkeys(unknown, size // known)
        return axes


def _axes_by_group(groups: list[str]) -> list[list[str]]:
    return [[name for name in group.strip("()").split() if name != "1"] for group in groups]
