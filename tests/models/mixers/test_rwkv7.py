"""RWKV-7's later layers read the values of the first layer, on a path next to the residual stream.

formats/test_round_trips.py compares the layers with fla's, and test_properties.py tests them like all mixers.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import tiny
from models.mixers import systems
from ssm_kernels import observe
from ssm_kernels.testing.numerics import worst
from torch import Tensor, nn

from ssm.base.errors import ConfigError
from ssm.models.backbone import LanguageModel
from ssm.models.state import LayerState, State
from ssm.specs.model import ModelSpec

T, B = 9, 2
MIXER = systems.SYSTEMS["rwkv7"] | {"value_rank": 3}
LAYERS = {"mixer": MIXER, "ffn": {"kind": "rwkv_channel_mix", "d_hidden": 12, "receptance": False}}


pytestmark = pytest.mark.usefixtures("plain_backend")


def spec(**fields: Any) -> ModelSpec:
    return systems.model_spec(**LAYERS | fields)


def model(**fields: Any) -> LanguageModel:
    return systems.model(**LAYERS | fields)


class Stack(nn.Module):
    """A model with the interface of a mixer: vectors as inputs, and the states of all layers under flat names."""

    def __init__(self, **fields: Any):
        super().__init__()
        self.model = model(tie_embeddings=False, **fields)
        self.model.embedding = nn.Identity()

    def forward(
        self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        y, ended = self.model(u, None if state is None else State.from_tensors(state), resets)
        return y, ended.tensors()

    def step(self, u: Tensor, state: LayerState | None = None) -> tuple[Tensor, LayerState]:
        y, ended = self.model.step(u, None if state is None else State.from_tensors(state))
        return y, ended.tensors()


def test_the_first_layer_has_no_value_map() -> None:
    names = {name for name, _ in model().named_parameters() if "value_" in name}
    assert names == {f"layers.{i}.mixer.value_{part}" for i in (1, 2) for part in ("base", "down", "up")}


@pytest.mark.parametrize("n_layers", [1, 2, 4])
def test_the_main_mixer(n_layers: int) -> None:
    """The missing value map of the first layer does not make it another mixer. Half of the layers are RWKV-7."""
    half = dict.fromkeys(range(n_layers, 2 * n_layers), systems.SYSTEMS["attention"])
    found = spec(n_layers=2 * n_layers, mixer_at=half).main_mixer()
    assert found.model_dump(exclude_defaults=True) == systems.parsed(MIXER).model_dump(exclude_defaults=True)


def test_a_copy_with_another_number_of_layers() -> None:
    found = spec(n_layers=2)
    assert len(found.model_copy(update={"n_layers": 5}).mixers()) == 5
    assert len(found.mixers()) == 2


@pytest.fixture(scope="module", params=[{}, {1: systems.SYSTEMS["attention"]}], ids=["alone", "attention between"])
def stack(request: pytest.FixtureRequest) -> Stack:
    """A layer of another kind passes the values on."""
    return Stack(mixer_at=request.param)


@pytest.mark.parametrize("with_resets", [False, True])
def test_a_split_changes_nothing(stack: Stack, with_resets: bool) -> None:
    u, start = systems.inputs(0, B, T), systems.started(stack, B)
    resets = torch.zeros(B, T, dtype=torch.bool)
    resets[0, 2] = resets[1, [4, 5]] = with_resets
    expected = systems.everything(stack, u, start, systems.in_pieces(stack, [0, T], resets))
    assert worst(systems.everything(stack, u, start, systems.in_pieces(stack, [0, 1, 5, T], resets)), expected) < 1e-10


def test_the_parallel_form_is_the_recurrence(stack: Stack) -> None:
    u, start = systems.inputs(1, B, T), systems.started(stack, B)
    expected = systems.everything(stack, u, start, systems.stepwise(stack))
    assert worst(systems.everything(stack, u, start, systems.in_pieces(stack, [0, T])), expected) < 1e-10


def test_every_weight_and_the_initial_state_matter(stack: Stack) -> None:
    u, start = systems.inputs(2, B, T), systems.started(stack, B)
    y, ended = stack(u, start)
    found = systems.everything(stack, u, start, systems.in_pieces(stack, [0, T]))
    gradients = found[1 + len(systems.numbers(ended)) :]
    assert all(gradient.isfinite().all() and gradient.abs().max() > 1e-8 for gradient in gradients)
    assert worst([stack(u, None)[0][:, 0]], [y[:, 0]]) > 1e-4


@torch.no_grad()
def test_resets_of_single_rows(stack: Stack) -> None:
    """Before a reset nothing changes; after it, the row equals a sequence from the zero state."""
    u, start = systems.inputs(3, B, T), systems.started(stack, B)
    resets = torch.zeros(B, T, dtype=torch.bool)
    resets[1, 4] = True
    y, ended = stack(u, start, resets)
    whole, restarted = stack(u, start), stack(u[1:, 4:])
    assert worst([y[0], y[1, :4], y[1:, 4:]], [whole[0][0], whole[0][1, :4], restarted[0]]) < 1e-10
    for row, expected in ((0, whole[1]), (1, restarted[1])):
        for layer in (0, 2):
            for part in ("memory", "shift"):
                name = f"{layer}.{part}"
                assert worst([ended[name][row]], [expected[name][row if len(expected[name]) > 1 else 0]]) < 1e-10
    zeros = State.from_tensors(start).zeros(B).tensors()
    assert worst([stack(u, zeros)[0]], [stack(u)[0]]) < 1e-12


def test_gradients_pass_from_layer_to_layer() -> None:
    """The gradient along a random direction of the first layer's value projection equals a finite difference."""
    built, tokens = model(), tiny.tokens(4, B, T)
    weight = built.layers[0].mixer.value.weight
    direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def loss(by: float) -> Tensor:
        name = "layers.0.mixer.value.weight"
        return torch.func.functional_call(built, {name: weight + by * direction}, (tokens,))[0].square().sum()

    with torch.no_grad():
        expected = (loss(1e-5) - loss(-1e-5)) / 2e-5
    loss(0.0).backward()
    assert float((weight.grad * direction).sum()) == pytest.approx(float(expected), rel=1e-6)


def test_later_layers_mix_in_the_first_layers_values() -> None:
    """With a very negative bias of the value map a layer uses its own values, with a large bias the first layer's."""
    built, tokens = model(), tiny.tokens(1, 2, 9)
    logits, values = {}, []
    for base in (-50.0, 50.0):
        for layer in built.layers[1:]:
            layer.mixer.value_base.data.fill_(base)
        values.clear()
        with observe(lambda name, given, _: values.append(given.v) if name == "delta_scan" else None):
            logits[base] = built(tokens)[0].detach()
    assert worst(values[1:], [values[0], values[0]]) < 1e-12
    alone = model(mixer=systems.SYSTEMS["rwkv7"])
    alone.load_state_dict({name: x for name, x in built.state_dict().items() if "value_" not in name})
    assert worst([alone(tokens)[0]], [logits[-50.0]]) < 1e-10
    assert worst([logits[50.0]], [logits[-50.0]]) > 1e-2


def test_gradients_with_recomputation() -> None:
    built, tokens = model(), tiny.tokens(2, 2, 9)
    found = []
    for recompute in (False, True):
        built.recompute = recompute
        built.zero_grad()
        built(tokens)[0].square().sum().backward()
        found.append([parameter.grad.clone() for parameter in built.parameters() if parameter.grad is not None])
    assert len(found[0]) == len(list(built.parameters()))
    assert worst(found[1], found[0]) < 1e-12


def test_the_first_layer_has_to_be_of_the_kind() -> None:
    with pytest.raises(ConfigError, match="mixer: layer 1 reads the values of layer 0, which must be rwkv7"):
        spec(mixer_at={0: systems.SYSTEMS["attention"]})
