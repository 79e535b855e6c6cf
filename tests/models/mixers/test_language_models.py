"""Language models with all mixers, ffns and norms, and hybrids: splits, resets, decoding, files, recomputation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from models import tiny
from models.mixers import systems
from small import save_model
from ssm_kernels.testing.numerics import worst
from torch import Tensor

from ssm.base.errors import ConfigError
from ssm.models.backbone import LanguageModel, build_model
from ssm.models.state import State
from ssm.models.weights_file import load_model
from ssm.specs.data import DataSpec
from ssm.specs.initial_states import InitialStateSpec
from ssm.specs.initial_states.fitted_noise import FittedNoise
from ssm.specs.initial_states.random_noise import RandomNoise
from ssm.specs.initial_states.state_passing import StatePassing
from ssm.specs.initial_states.tbtt import Tbtt
from ssm.specs.initial_states.zero import ZeroState
from ssm.specs.training import Budget, RunSpec, TrainingSpec

T = 11
AROUND: dict[str, dict[str, Any]] = {
    "only a mixer": {},
    "mlp": {"ffn": {"kind": "mlp", "d_hidden": 12, "activation": "relu"}, "norm": "layer"},
    "gated mlp": {"ffn": {"kind": "gated_mlp", "d_hidden": 12, "activation": "gelu"}},
    "rwkv": {"ffn": {"kind": "rwkv_channel_mix", "d_hidden": 12}, "norm": "layer", "embedding_norm": True},
    "parallel": {"ffn": {"kind": "rwkv_channel_mix", "d_hidden": 12}, "parallel_residual": True},
}
HYBRID = {
    "mixer": systems.SYSTEMS["mamba2"],
    "mixer_at": {1: systems.SYSTEMS["attention, window"], 2: systems.SYSTEMS["rwkv6"]},
}


def states(one: State, other: State) -> tuple[list[Tensor], list[Tensor]]:
    """Two states as lists of tensors to compare."""
    layers = [systems.pairs(a, b) for a, b in zip(one.layers, other.layers, strict=True)]
    return [x for got, _ in layers for x in got], [x for _, expected in layers for x in expected]


def decoded(built: LanguageModel, tokens: Tensor, state: State | None) -> tuple[Tensor, State]:
    logits = []
    for t in range(tokens.shape[1]):
        y, state = built.step(tokens[:, t], state)
        logits.append(y)
    assert state is not None
    return torch.stack(logits, 1), state


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("mixers", [{"mixer": systems.SYSTEMS["gla"]}, HYBRID], ids=["gla", "hybrid"])
def test_splits_resets_and_decoding(around: dict[str, Any], mixers: dict[str, Any]) -> None:
    """A split, a reset and decoding token by token give equal logits and equal final states."""
    built, tokens = systems.model(**around, **mixers), tiny.tokens(0, 2, T)
    with torch.no_grad():
        start = built(tiny.tokens(1, 2, 3))[1]
        whole, ended = built(tokens, start)
        first, middle = built(tokens[:, :4], start)
        second, end = built(tokens[:, 4:], middle)
        steps, last = decoded(built, tokens, start)
        resets = torch.zeros(2, T, dtype=torch.bool)
        resets[:, 5] = True
        reset, reset_end = built(tokens, start, resets)
        restarted, restarted_end = built(tokens[:, 5:])
    for got, expected in (states(end, ended), states(last, ended), states(reset_end, restarted_end)):
        assert worst(got, expected) < 1e-10
    assert worst([torch.cat([first, second], 1), steps], [whole, whole]) < 1e-10
    assert worst([reset[:, 5:]], [restarted]) < 1e-10
    assert worst([whole], [built(tokens)[0]]) > 1e-3


@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_files_and_recomputation(tmp_path: Path, name: str) -> None:
    """A model from a file has equal gradients, bit for bit. So has a model that recomputes activations."""
    data = DataSpec.parse({"name": "text", "corpus": {"kind": "files", "paths": ["*.txt"]}}, "test")
    training = TrainingSpec(context=8, batch_tokens=32, budget=Budget(steps=1))
    run = RunSpec(model=systems.model_spec(mixer=systems.SYSTEMS[name]), data=data, training=training, seed=3)
    built = build_model(run.model, data.vocab_size, 3)
    systems.move(built)
    save_model(tmp_path / "model.safetensors", built, run, 7, "text")
    back, its_run = load_model(tmp_path / "model.safetensors")
    assert its_run == run
    tokens = tiny.tokens(2, 2, T)
    start = built(tiny.tokens(3, 2, 4))[1].detach()
    gradients = []
    for each, recompute in ((built, False), (back, False), (back, True)):
        each.recompute = recompute
        logits, ended = each(tokens, start)
        loss = logits.square().mean() + sum(memory.float().square().mean() for memory in ended.recurrent_states())
        gradients.append(torch.autograd.grad(loss, list(each.parameters())))
    for other in gradients[1:]:
        assert all(torch.equal(got, expected) for got, expected in zip(other, gradients[0], strict=True))


def test_names_of_ffn_states() -> None:
    built = systems.model(mixer=systems.SYSTEMS["rwkv6"], ffn={"kind": "rwkv_channel_mix", "d_hidden": 12})
    state = built(tiny.tokens(0, 2, 3))[1]
    assert set(state.layers[0]) == {"memory", "shift", "ffn.shift"}
    back = State.from_tensors(state.tensors("last."), "last.")
    assert set(back.layers[2]) == {"memory", "shift", "ffn.shift"}
    assert state.norm().shape == (2,)


def test_initialization_by_layer() -> None:
    """RWKV's initialization depends on the layer."""
    ffn = {"kind": "rwkv_channel_mix", "d_hidden": 12}
    built = build_model(systems.model_spec(mixer=systems.SYSTEMS["rwkv6"], ffn=ffn), tiny.VOCABULARY, 0)
    assert torch.equal(built.layers[0].ffn.key_mix, 1 - torch.arange(systems.D) / systems.D)
    assert not torch.equal(built.layers[0].ffn.key_mix, built.layers[2].ffn.key_mix)
    first, last = built.layers[0].mixer, built.layers[2].mixer
    assert not torch.equal(first.decay_base, last.decay_base)
    assert torch.equal(first.shift_mix, 1 - torch.arange(systems.D) / systems.D)
    channel = torch.arange(systems.D)
    zigzag = 0.1 * ((channel + 1) % 3 - 1)
    assert max(first.decay_up.abs().max(), first.shift_up.abs().max()) <= 0.01
    assert torch.allclose(first.bonus.flatten(), zigzag)
    assert torch.allclose(last.bonus.flatten(), 1 - channel / (systems.D - 1) + zigzag)
    assert torch.allclose(last.shift_base[2], 0.7 - (channel / systems.D) ** (1 / 3))  # of the values
    assert first.decay_base[0] == -6
    assert first.decay_base[-1] == -1
    slow = build_model(
        systems.model_spec(mixer=systems.SYSTEMS["rwkv6"] | {"decay_range": [1e-4, 1e-3]}), tiny.VOCABULARY, 0
    )
    for layer in slow.layers:
        assert layer.mixer.decay_base[[0, -1]].exp().tolist() == pytest.approx([1e-4, 1e-3])
        assert (layer.mixer.decay_base.diff() > 0).all()


@pytest.mark.parametrize(
    ("mixer", "policy", "says"),
    [
        ("attention", RandomNoise(sigma=0.1), "needs a recurrence in every layer; layer 1 of 'tiny' is attention"),
        ("attention, window", FittedNoise(), "whose state is a cache of tokens"),
        ("linear_attention", FittedNoise(), "layer 1 of 'tiny' divides by a normalizer, which would start from zero"),
        ("all", StatePassing(), "needs a state of fixed size; all layers of 'tiny' are attention without a window"),
        ("all", Tbtt(), "whose cache would grow with every batch"),
    ],
)
def test_initial_states_need_a_recurrence(mixer: str, policy: InitialStateSpec, says: str) -> None:
    data = DataSpec.parse({"name": "text", "corpus": {"kind": "files", "paths": ["*.txt"]}}, "test")
    fields: dict[str, Any] = {"mixer": systems.SYSTEMS["gla"]}
    if mixer == "all":
        fields["mixer"] = systems.SYSTEMS["attention"]
    else:
        fields["mixer_at"] = {1: systems.SYSTEMS[mixer]}
    content = {"model": systems.model_spec(**fields), "data": data, "seed": 0}
    training = {"context": 8, "batch_tokens": 32, "budget": Budget(steps=1)}
    with pytest.raises(ConfigError) as error:
        RunSpec.parse(content | {"training": TrainingSpec(**training, initial_state=policy)}, "file: arms.a")
    assert str(error.value).startswith("file: arms.a: initial_state '")
    assert says in str(error.value)
    RunSpec.parse(content | {"training": TrainingSpec(**training, initial_state=ZeroState())}, "file")
    for other in ("attention", "attention, window"):
        fields["mixer_at"] = {1: systems.SYSTEMS[other], 2: systems.SYSTEMS["gla"]}
        RunSpec.parse(
            content
            | {"model": systems.model_spec(**fields), "training": TrainingSpec(**training, initial_state=Tbtt())},
            "file",
        )
