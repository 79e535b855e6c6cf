"""The GRU against torch.nn.GRU, and one token at a time against torch.nn.GRUCell."""

from __future__ import annotations

import pytest
import torch
from models.mixers.systems import D, inputs, parsed
from ssm_kernels.testing.numerics import normal, worst
from torch import nn

from ssm.models.device import prepare_device
from ssm.models.mixers import build_mixer
from ssm.models.mixers.gru import Gru


def layer() -> Gru:
    torch.manual_seed(0)
    mixer = build_mixer(parsed({"kind": "gru"}), D, 2).double()
    assert isinstance(mixer, Gru)
    return mixer


def test_a_layer_and_its_cell() -> None:
    mixer, u, start = layer(), inputs(0, 3, 12), normal(1, (3, 1, D))[0]
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    weights = {name: mixer.gru.get_parameter(f"{name}_l0") for name in names}
    whole, cell = nn.GRU(D, D, batch_first=True).double(), nn.GRUCell(D, D).double()
    whole.load_state_dict({f"{name}_l0": weight for name, weight in weights.items()})
    cell.load_state_dict(weights)

    y, ended = mixer(u, {"memory": start})
    expected, last = whole(u, start.transpose(0, 1).contiguous())
    assert worst([y, ended["memory"]], [expected, last.transpose(0, 1)]) < 1e-12
    state, h = {"memory": start}, start[:, 0]
    for t in range(12):
        (y_t, state), h = mixer.step(u[:, t], state), cell(u[:, t], h)
        assert worst([y_t, state["memory"]], [h, h.unsqueeze(1)]) < 1e-12


def test_float32_on_a_gpu_is_not_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.nn.GRU runs in cuDNN there."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    prepare_device("cpu")
    assert not torch.backends.cudnn.allow_tf32
