"""AdamW: which parameters decay, what a step computes, and how its state is restored."""

from __future__ import annotations

import pytest
import torch
from models import tiny
from models.test_foreign import made

from ssm.models.backbone import LanguageModel
from ssm.models.foreign import ForeignModel
from ssm.models.trainable import TrainableModel
from ssm.specs.training import Budget, TrainingSpec
from ssm.training.optimizer import build_optimizer, load_optimizer, optimizer_tensors, set_rates

TRAINING = TrainingSpec(context=8, batch_tokens=8, budget=Budget(steps=1))


@pytest.mark.parametrize("tie", [True, False])
def test_only_linear_maps_decay(tie: bool) -> None:
    model = tiny.model(n_layers=2, tie_embeddings=tie)
    optimizer = build_optimizer(model, TRAINING)
    set_rates(optimizer, 0.5, 0.02)
    decays = {id(parameter): group["weight_decay"] for group in optimizer.param_groups for parameter in group["params"]}
    linear = {f"layers.{i}.mixer.{name}_proj.weight" for i in range(2) for name in ("in", "out")}
    linear |= set() if tie else {"head.weight"}
    assert {name for name, p in model.named_parameters() if decays[id(p)] == 0.02} == linear
    assert {name for name, p in model.named_parameters() if decays[id(p)] == 0.0} == (
        {name for name, _ in model.named_parameters()} - linear
    )
    assert len(decays) == len(list(model.parameters()))


def decaying(model: TrainableModel) -> set[str]:
    matrices = build_optimizer(model, TRAINING).param_groups[0]
    assert matrices["decays"]
    among = {id(parameter) for parameter in matrices["params"]}
    return {name for name, parameter in model.named_parameters() if id(parameter) in among}


def test_matrices_of_experts_decay() -> None:
    ffn = {"kind": "experts", "d_hidden": 8, "d_shared": 8, "n_experts": 4, "top_k": 2, "scores": "sigmoid"}
    found = decaying(tiny.model(n_layers=1, ffn=ffn))
    shared = {f"shared.{name}_proj.weight" for name in ("gate", "up", "down")}
    held = {name.removeprefix("layers.0.ffn.") for name in found if ".ffn." in name}
    assert held - shared == {"router.weight", "up_proj", "down_proj", "shared_gate.weight"}


@pytest.mark.parametrize("tie", [True, False])
def test_a_foreign_model_decays_as_ours(tie: bool) -> None:
    """Linear maps, fused experts and routers decay. A tied embedding does not, although its head is an nn.Linear."""
    model = ForeignModel(made("GraniteMoeHybrid", tie_word_embeddings=tie), "x")
    found = decaying(model)
    assert "inner.model.embed_tokens.weight" not in found
    assert ("inner.lm_head.weight" in found) != tie
    ends = {name.removeprefix("inner.model.layers.0.") for name in found if "layers.0." in name}
    linear = {"mamba.in_proj.weight", "mamba.out_proj.weight"}
    linear |= {f"shared_mlp.{name}_linear.weight" for name in ("input", "output")}
    experts = {name for name in ends if "moe" in name}
    assert ends == linear | experts
    shapes = {tuple(model.get_parameter(f"inner.model.layers.0.{name}").shape) for name in experts}
    assert shapes == {(2, 32), (2, 96, 32), (2, 32, 48)}  # router, gate and up, down


def test_settings_come_from_the_spec() -> None:
    changed = TRAINING.model_copy(update={"betas": (0.7, 0.8), "eps": 1e-3})
    optimizer = build_optimizer(tiny.model(), changed)
    set_rates(optimizer, 0.5, 0.02)
    for group in optimizer.param_groups:
        assert (group["betas"], group["eps"], group["lr"]) == ((0.7, 0.8), 1e-3, 0.5)


def test_a_step_is_adamw() -> None:
    """Compute the first step by hand: decay the weight by lr * decay, then move by lr * g / (|g| + eps)."""
    model = tiny.model(n_layers=1)
    optimizer = build_optimizer(model, TRAINING)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train(model, optimizer, 0)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        decay = 0.1 if name.endswith("_proj.weight") else 0.0
        expected = before[name] * (1 - 0.01 * decay) - 0.01 * parameter.grad / (parameter.grad.abs() + 1e-8)
        assert torch.allclose(parameter, expected, atol=1e-6), name


def train(model: LanguageModel, optimizer: torch.optim.Optimizer, seed: int) -> None:
    """One step at lr 0.01 and decay 0.1."""
    set_rates(optimizer, 0.01, 0.1)
    optimizer.zero_grad()
    model(tiny.tokens(seed, 2, 6))[0].square().mean().backward()
    optimizer.step()


def test_a_resumed_optimizer_continues_bitwise() -> None:
    model = tiny.model()
    optimizer = build_optimizer(model, TRAINING)
    assert optimizer_tensors(model, optimizer) == {}
    for seed in range(3):
        train(model, optimizer, seed)
    other = tiny.model(seed=5)
    other.load_state_dict(model.state_dict())
    resumed = build_optimizer(other, TRAINING)
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(model, optimizer).items()}
    assert len(saved) == 3 * len(list(model.parameters()))
    load_optimizer(other, resumed, saved)
    for seed in range(3, 5):
        train(model, optimizer, seed)
        train(other, resumed, seed)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
