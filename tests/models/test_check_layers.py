"""Mistakes in a layer are found before training, and the check changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models.mixers import systems
from models.test_registries import FFN_EXAMPLES

from ssm.base.discovery import RegistryError
from ssm.models.check_layers import check_layers
from ssm.models.mixers.gru import Gru
from ssm.models.state import LayerOutput, LayerState
from ssm.specs.mixers.gru import GruMixer

GRU, MODULE = {"kind": "gru"}, "ssm/models/mixers/gru.py"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_every_mixer_passes(name: str, dtype: torch.dtype) -> None:
    model = systems.model(mixer=systems.SYSTEMS[name]).to(dtype)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    seeded = torch.random.get_rng_state()
    check_layers(model)
    assert torch.equal(torch.random.get_rng_state(), seeded)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", FFN_EXAMPLES)
def test_every_ffn_passes(name: str) -> None:
    check_layers(systems.model(mixer=GRU, ffn=FFN_EXAMPLES[name]))


FAULTS: dict[str, tuple[Callable[[torch.Tensor, LayerState], Any], str]] = {
    "no state": (lambda y, state: y, "expected y and the state, a dictionary of tensors"),
    "no tensor": (lambda y, state: (y, {"memory": None}), "expected y and the state, a dictionary of tensors"),
    "no y": (lambda y, state: (None, state), "expected y and the state, a dictionary of tensors"),
    "width": (lambda y, state: (y[..., :4], state), r"y is \(2, (1, )?4\), its input is \(2, (1, )?8\)"),
    "name": (lambda y, state: (y, {"h": state["memory"]}), r"the state must have the name 'memory', found \['h'\]"),
    "no head axis": (
        lambda y, state: (y, {"memory": state["memory"][:, 0]}),
        r"the state 'memory' is \(2, 8\), its spec says \(2, 1, 8\)",
    ),
    "no batch axis": (
        lambda y, state: (y, {"memory": state["memory"][0]}),
        r"the state 'memory' is \(1, 8\) for a batch of 2",
    ),
}


@pytest.mark.parametrize("method", ["forward", "step"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_output_names_the_file(monkeypatch: pytest.MonkeyPatch, fault: str, method: str) -> None:
    change, message = FAULTS[fault]
    right: Callable[..., LayerOutput] = getattr(Gru, method)
    monkeypatch.setattr(Gru, method, lambda *inputs: change(*right(*inputs)))
    with pytest.raises(RegistryError, match=f"^{re.escape(MODULE)}: {method}: {message}$"):
        check_layers(systems.model(mixer=GRU))


@pytest.mark.parametrize(
    ("method", "wrong", "message"),
    [
        ("parameters", 7, "432 parameters, its spec says 7"),
        ("state_shape", (2, 4), r"forward: the state 'memory' is \(2, 1, 8\), its spec says \(2, 2, 4\)"),
        ("state_numbers", 24, r"forward: the state \['memory'\] has 8 numbers, its spec says 24"),
    ],
)
def test_a_wrong_spec_is_found(monkeypatch: pytest.MonkeyPatch, method: str, wrong: object, message: str) -> None:
    monkeypatch.setattr(GruMixer, method, lambda *inputs: wrong)
    with pytest.raises(RegistryError, match=f"^{re.escape(MODULE)}: {message}$"):
        check_layers(systems.model(mixer=GRU))
