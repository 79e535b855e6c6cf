"""AdamW with weight decay on the weights of linear layers alone, and its state by parameter name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ssm.models.trained import Trained
from ssm.specs.training import TrainingSpec
from ssm.training.parallel import spread_as

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def build_optimizer(model: Trained, training: TrainingSpec) -> torch.optim.AdamW:
    """Two groups: the weights of nn.Linear, which decay, and everything else.

    That is the embedding, norms, biases and the recurrences' own parameters, and also the matrices that a mixer holds
    bare: a GRU's, the gate blocks of RG-LRU, the low-rank maps of RWKV-6.
    """
    matrices = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if id(p) in matrices], "decays": True},
        {"params": [p for p in parameters if id(p) not in matrices], "decays": False},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=training.betas, eps=training.eps, weight_decay=0.0, fused=True)


def set_rates(optimizer: torch.optim.Optimizer, lr: float, decay: float) -> None:
    """This step's learning rate and weight decay."""
    for group in optimizer.param_groups:
        group["lr"] = lr
        group["weight_decay"] = decay if group["decays"] else 0.0


def optimizer_tensors(model: Trained, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as flat tensors, "<parameter>.<moment>"."""
    state = optimizer.state
    return {
        f"{name}.{moment}": state[parameter][moment]
        for name, parameter in model.named_parameters()
        if parameter in state
        for moment in MOMENTS
    }


def load_optimizer(model: Trained, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`."""
    for name, parameter in model.named_parameters():
        if f"{name}.step" in tensors:
            moments = {moment: tensors[f"{name}.{moment}"].to(parameter.device) for moment in MOMENTS}
            optimizer.state[parameter] = spread_as(moments, dict.fromkeys(MOMENTS, parameter))
