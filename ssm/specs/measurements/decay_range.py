"""The spec of the range of decays."""

from __future__ import annotations

from typing import ClassVar, Literal

from ssm.base.schema import Schema
from ssm.specs.base import ReadCount
from ssm.specs.measurements.base import A_DECAY, OfWindows
from ssm.specs.model import ModelSpec

THRESHOLDS = 50  # of the cumulative histogram, after 0


class DecayRange(OfWindows):
    """Cumulative histograms of A_max - A_min of the decays over a text, by state and by channel (bn figure 6).

    The model needs a layer with a decay for each state. RWKV-4, the GRU, attention and the delta rule have none.
    """

    table: ClassVar[Schema] = Schema(
        "decay_range",
        "one sequence, one layer (0: all), one threshold: shares of states and channels with A_max - A_min up to it",
        {
            "sequence": int,
            "layer": int,
            "threshold": float,
            "share": float,  # of states, with the range over tokens
            "channel_share": float,  # of channels (or heads), with the range over tokens and states
        },
        keys=("sequence", "layer", "threshold"),
        sample="sequence",
    )
    kind: Literal["decay_range"] = "decay_range"
    sequences: ReadCount = 16
    seed: int = 12

    def lacking(self, model: ModelSpec) -> str | None:
        return None if model.decaying else A_DECAY

    def rows(self, model: ModelSpec) -> float:
        return self.sequences * (1 + model.n_layers) * (1 + THRESHOLDS)
