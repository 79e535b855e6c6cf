"""Overflow of a linear recurrence by number format, in ssm's scans and in a plain loop (ls eq. 40).

Scans compute states in float32 or better for all inputs. With half-precision inputs, a state overflows when it is
written in their format (`stored`), not inside the scan (`carried`). The loop rounds every step to the format, like a
kernel without wider states.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import polars as pl
import torch
from ssm_kernels import diagonal_scan
from torch import Tensor

from ssm.base.progress import Progress
from ssm.base.seeds import numpy_generator
from ssm.evaluation.registry import MEASURES
from ssm.specs.measurements.overflow import Overflow

DTYPES = {name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64")}


@MEASURES.function
def overflow(spec: Overflow, device: torch.device | None = None) -> pl.DataFrame:
    """Overflows in the schema Overflow.table, on the CPU, where the loop and all backends run.

    Raises:
        ssm_kernels.BackendError: a backend is not available.
    """
    rows: list[tuple[Any, ...]] = []
    with Progress("measure overflow", len(spec.formats) * len(spec.arithmetics), "scans") as progress:
        for name in spec.formats:
            inputs = _Inputs(spec, DTYPES[name])
            rows += [(name, "bound", state, *row) for state in ("carried", "stored") for row in inputs.bound()]
            for arithmetic in spec.arithmetics:
                carried = _states(arithmetic, inputs.weights, inputs.added)  # (1 + draws, T, D)
                for state, h in (("carried", carried), ("stored", carried.to(DTYPES[name]))):
                    rows += [(name, arithmetic, state, *row) for row in inputs.rows(h)]
                progress.advance(1)
    return pl.DataFrame(rows, schema=Overflow.table.columns, orient="row")


def predicted(weight: float, g: float) -> int | None:
    """The first t with g (1 - a^t) / (1 - a) > 1, for a weight a above 0. None: there is none.

    >>> predicted(1.0, 0.25), predicted(0.5, 0.75), predicted(0.5, 0.5)
    (5, 2, None)
    """
    left = weight - 1
    if left <= -g:
        return None
    crossed = 1 / g if left == 0 else math.log1p(left / g) / math.log(weight)
    return math.floor(crossed + 1e-9) + 1


def _states(arithmetic: str, weights: Tensor, added: Tensor) -> Tensor:
    """(D,), (B, T, D) -> (B, T, D)"""
    if arithmetic != "loop":
        return diagonal_scan(weights, added, backend=arithmetic)[0]
    h, states = torch.zeros_like(added[:, 0]), []
    for b in added.unbind(1):
        h = weights * h + b  # (B, D), each operation rounded
        states.append(h)
    return torch.stack(states, 1)


class _Inputs:
    """Weights and inputs in one format.

    Each channel has one g and one share. The first row of inputs is constant, the others have random signs.
    """

    def __init__(self, spec: Overflow, dtype: torch.dtype):
        self.channels = [(halvings, share) for halvings in spec.halvings for share in spec.shares]
        sizes = torch.tensor([2.0**-halvings for halvings, _ in self.channels], dtype=torch.float64)  # (D,)
        shares = torch.tensor([share for _, share in self.channels], dtype=torch.float64)
        self.weights = (1 - shares * sizes).to(dtype)
        self.steps = spec.lengths * 2 ** max(spec.halvings)
        shape = (1 + spec.draws, self.steps, len(self.channels))
        signs = torch.from_numpy(numpy_generator(spec.seed, "signs").integers(2, size=shape) * 2 - 1)
        signs[0] = 1
        self.added = (signs * (sizes * torch.finfo(dtype).max)).to(dtype)  # (1 + draws, T, D)

    def rows(self, h: Tensor) -> Iterator[tuple[Any, ...]]:
        """The columns of Overflow.table after `state`, for states (1 + draws, T, D)."""
        broken = ~h.isfinite()
        position = torch.where(broken.any(1), broken.int().argmax(1) + 1, 0).tolist()  # 0: none
        for row in range(len(h)):
            for channel in range(len(self.channels)):
                yield self._row(channel, row, position[row][channel] or None)

    def bound(self) -> Iterator[tuple[Any, ...]]:
        """The same columns for the bound of ls eq. 39."""
        for channel, (halvings, _) in enumerate(self.channels):
            yield self._row(channel, 0, predicted(float(self.weights[channel]), 2.0**-halvings))

    def _row(self, channel: int, draw: int, position: int | None) -> tuple[Any, ...]:
        halvings, share = self.channels[channel]
        weight, g = float(self.weights[channel]), 2.0**-halvings
        expected = predicted(weight, g)
        within = None if expected is None else position is not None and expected <= 2 * position <= 4 * expected
        key = ("random" if draw else "constant", halvings, share, max(draw, 1), weight, expected is not None, expected)
        return (*key, self.steps, position, position is not None, None if position is None else position * g, within)
