"""DeltaNet (Schlag et al. 2021; Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule")."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ssm.models.mixers.delta_rule import DeltaRule
from ssm.models.mixers.parts import upcast


class DeltaNet(DeltaRule, kind="deltanet"):
    """The delta rule without decay, as in fla's layer, with an optional gate."""

    def _log_decay(self, *extra: Tensor) -> None:
        return None

    def _gated(self, y: Tensor, *extra: Tensor) -> Tensor:
        return y * F.silu(upcast(extra[0])) if extra else y
