from __future__ import annotations

import pytest
import torch
from small import model_spec

from ssm.data.store import TokenStore
from ssm.evaluation.evaluation_context import EvaluationContext
from ssm.models.backbone import build_model


@pytest.fixture
def ctx(store: TokenStore) -> EvaluationContext:
    """An untrained model with a long memory, in float64 so that comparisons are exact."""
    model = build_model(model_spec(), 256, seed=1).double().eval()
    return EvaluationContext(model, 3, store, torch.device("cpu"), "test")
