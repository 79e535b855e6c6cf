"""Hybrids: recurrences pass their states on, attention restarts with every batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from models import tiny
from small import make_store, run_spec
from torch import Tensor

from ssm.models.state import State
from ssm.models.weights_file import load_tensors, save_tensors
from ssm.specs.training import RunSpec
from ssm.training import step
from ssm.training.loop import train

HYBRID: dict[str, Any] = {"mixer_at": {"1": {"kind": "attention", "n_heads": 2}}}


def by_hand(model: Any, tokens: Tensor, state: State) -> Tensor:
    """Compute the hybrid layer by layer, attention without a state."""
    x = model.embedded(tokens)
    for i, layer in enumerate(model.layers):
        x, *_ = layer(x, None if i == 1 else state.layers[i], None, None)
    return model.logits(model.norm(x))


def test_attention_restarts_and_recurrences_continue(tmp_path: Path) -> None:
    model = tiny.model(mixer_at={1: {"kind": "attention", "n_heads": 2}})
    assert model.spec.endless == (1,)
    tokens = tiny.tokens(0, 2, 17)
    with torch.no_grad():
        _, state = model(tokens[:, :9])
        passed = state.without(model.spec.endless)
        save_tensors(tmp_path / "state", passed.tensors(), {})  # as in a checkpoint
        passed = State.from_tensors(load_tensors(tmp_path / "state")[0])
        got, ended = model(tokens[:, 9:], passed)
        assert torch.equal(got, by_hand(model, tokens[:, 9:], state))
        assert ended.layers[1]["seen"].shape == (2, 8)
        assert (model(tokens[:, 9:], state)[0] - got).abs().max() > 0.1
        assert (model(tokens[:, 9:])[0] - got).abs().max() > 0.1


@pytest.mark.parametrize("policy", ["state_passing", "tbtt"])
def test_the_initial_state_of_a_batch(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path)
    run = run_spec(
        store.spec,
        budget={"steps": 3},
        micro_batch_tokens=64,
        batch_tokens=128,
        initial_state={"policy": policy, "p_zero": 0.0},
    )
    content = run.content()
    run = RunSpec.parse(content | {"model": content["model"] | HYBRID}, "test")
    loss_of, seen = step.loss_of, []

    def spied(model: Any, batch: Any, start: State | None, *others: Any) -> step.MicroBatchResult:
        part = loss_of(model, batch, start, *others)
        seen.append((start, part.ended))
        return part

    monkeypatch.setattr(step, "loss_of", spied)
    train(run, store, tmp_path / "run", torch.device("cpu"))
    (first, _), (_, _), (start, _), (other, _), *_ = seen  # two micro-batches per step
    assert first is None
    for (_, ended), given in zip(seen[:2], (start, other), strict=True):
        assert torch.equal(given.layers[0]["memory"], ended.layers[0]["memory"])
        assert torch.equal(given.layers[0]["conv"], ended.layers[0]["conv"])
        assert ended.layers[1]["seen"].shape[1] == 16
        assert given.layers[1]["memory"].shape[2] == given.layers[1]["seen"].shape[1] == 0
