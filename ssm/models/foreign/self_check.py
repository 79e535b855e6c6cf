"""What the self-check of a foreign model expects: the logits and states of sequences that were read as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssm.models.foreign.cache import ForeignState

# Tolerances: (share of the scale of the numbers, share of the effect of the past, rounding as a share of the scale)
TOLERANCES = {torch.float32: (1e-3, 0.05, 1e-4)}
COARSE = (0.05, 0.5, 0.02)  # half precision


@dataclass(frozen=True)
class Expected:
    """The results of n sequences read as a whole. "Alone": only their last S tokens were read, from the zero state."""

    logits: Tensor  # (n, T, V)
    alone: Tensor  # (n, S, V)
    states: list[Tensor]  # after the last token, one for each recurrent layer, each (n, H, ...)
    states_alone: list[Tensor]

    def agrees(self, logits: Tensor, state: ForeignState, rows: Tensor) -> bool:
        """Whether logits (m, L, V) of the last L tokens of `rows` (m,), and the states after them, are as expected."""
        wanted = self.logits[rows, -logits.shape[1] :]  # (m, L, V)
        return _agree(logits, wanted, self.alone[rows], self.logits.std()) and all(
            _agree(own, other[rows], alone[rows], other.abs().max())
            for own, other, alone in zip(state.recurrent_states(), self.states, self.states_alone, strict=True)
        )


def _agree(values: Tensor, wanted: Tensor, alone: Tensor, scale: Tensor) -> bool:
    """Whether values are equal within tolerances: a share of their scale, and a share of the effect of the past.

    Args:
        alone: the last of the wanted values, computed from only the last piece.
    """
    share, of_past, rounding = TOLERANCES.get(wanted.dtype, COARSE)
    last = wanted[:, -alone.shape[1] :] if alone.shape != wanted.shape else wanted
    error, past = (values - wanted).abs().max(), (alone - last).abs().max()
    return bool(error <= share * scale and error <= torch.maximum(of_past * past, rounding * scale))
