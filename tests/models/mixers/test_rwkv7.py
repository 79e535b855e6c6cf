"""What RWKV-7's layers read of the first one's values: a path between layers beside the residual stream.

Its layers are fla's (formats/test_fla_rwkv7.py); what holds for every mixer is in test_properties.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from kernels.numerics import worst
from models import tiny
from models.mixers import systems
from ssm_kernels import use_backend

from ssm.base.errors import ConfigError
from ssm.models.backbone import LanguageModel, build_model
from ssm.models.inspect import layer_signals
from ssm.specs.model import ModelSpec

MIXER = systems.SYSTEMS["rwkv7"] | {"value_rank": 3}
FFN = {"kind": "rwkv_channel_mix", "d_hidden": 12, "receptance": False}


@pytest.fixture(autouse=True, scope="module")
def _plain_backend() -> Iterator[None]:
    with use_backend("reference"):
        yield


def spec(**fields: Any) -> ModelSpec:
    given = {"name": "tiny", "d_model": systems.D, "n_layers": 3, "peak_lr": 1e-3, "mixer": MIXER, "ffn": FFN}
    return ModelSpec.parse(given | fields, "test")


def model(**fields: Any) -> LanguageModel:
    built = build_model(spec(**fields), tiny.VOCABULARY, 0)
    systems.move(built)
    return built.double()


def test_the_first_layer_has_no_map_for_values() -> None:
    names = {name for name, _ in model().named_parameters() if "value_" in name}
    assert names == {f"layers.{i}.mixer.value_{part}" for i in (1, 2) for part in ("base", "down", "up")}
    assert spec().main_mixer().value_rank == 3


@pytest.mark.parametrize("attention_at", [None, 1])
@torch.no_grad()
def test_cutting_and_stepping_change_nothing(attention_at: int | None) -> None:
    """A layer of another kind between them hands on what it was handed."""
    between = {} if attention_at is None else {"mixer_at": {attention_at: systems.SYSTEMS["attention"]}}
    built, tokens = model(**between), tiny.tokens(0, 2, 11)
    whole, _ = built(tokens)
    first, state = built(tokens[:, :4])
    second, state = built(tokens[:, 4:9], state)
    steps = []
    for t in (9, 10):
        logits, state = built.step(tokens[:, t], state)
        steps.append(logits)
    assert worst([torch.cat([first, second, torch.stack(steps, 1)], 1)], [whole]) < 1e-10


def test_later_layers_mix_in_the_first_layers_values() -> None:
    """With the map's base far down a layer keeps its own values, far up it takes the first layer's for them."""
    built, tokens = model(), tiny.tokens(1, 2, 9)
    logits = {}
    for base in (-50.0, 50.0):
        for layer in built.layers[1:]:
            layer.mixer.value_base.data.fill_(base)
        logits[base] = built(tokens)[0].detach()
    alone = model(mixer=systems.SYSTEMS["rwkv7"])
    alone.load_state_dict({name: x for name, x in built.state_dict().items() if "value_" not in name})
    assert worst([alone(tokens)[0]], [logits[-50.0]]) < 1e-10
    with torch.no_grad():
        for layer in built.layers[1:]:
            layer.mixer.value.weight.zero_()  # nothing of their own is left to be read
    assert worst([built(tokens)[0]], [logits[50.0]]) < 1e-10
    assert worst([logits[50.0]], [logits[-50.0]]) > 1e-2


def test_gradients_are_the_same_where_activations_are_computed_again() -> None:
    built, tokens = model(), tiny.tokens(2, 2, 9)
    found = []
    for recompute in (False, True):
        built.recompute = recompute
        built.zero_grad()
        built(tokens)[0].square().sum().backward()
        found.append([parameter.grad.clone() for parameter in built.parameters() if parameter.grad is not None])
    assert len(found[0]) == len(list(built.parameters()))
    assert worst(found[1], found[0]) < 1e-12


@torch.no_grad()
def test_layers_that_are_looked_at_are_those_of_the_model() -> None:
    built, tokens = model(), tiny.tokens(3, 2, 9)
    *_, last = layer_signals(built, tokens)
    assert worst([built.logits(built.norm(last.block))], [built(tokens)[0]]) < 1e-12


def test_the_first_layer_has_to_be_of_the_kind() -> None:
    with pytest.raises(ConfigError, match="mixer: layer 1 reads the values of layer 0, which has to be rwkv7"):
        spec(mixer_at={0: systems.SYSTEMS["attention"]})
