"""AdamW with weight decay on the matrices of linear layers alone, and its state by parameter name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ssm.models.ffn.experts import ExpertsFfn
from ssm.models.trainable import TrainableModel
from ssm.specs.training import TrainingSpec
from ssm.training.parallel import spread_as

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def build_optimizer(model: TrainableModel, training: TrainingSpec) -> torch.optim.AdamW:
    """Two groups: the weights of nn.Linear and the matrices of experts and their routers, which decay, and the rest.

    That is embeddings, also where the head is the same weight, norms, biases and the recurrences' own parameters, and
    also the matrices that a mixer holds bare: a GRU's, the gate blocks of RG-LRU, the low-rank maps of RWKV-6.
    """
    modules = list(model.modules())
    matrices = {id(module.weight) for module in modules if isinstance(module, nn.Linear)}
    matrices |= {id(matrix) for module in modules for matrix in _of_experts(module)}
    matrices -= {id(module.weight) for module in modules if isinstance(module, nn.Embedding)}
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if id(p) in matrices], "decays": True},
        {"params": [p for p in parameters if id(p) not in matrices], "decays": False},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=training.betas, eps=training.eps, weight_decay=0.0, fused=True)


def _of_experts(module: nn.Module) -> list[nn.Parameter]:
    """The matrices that a module of experts holds bare, those of all experts in one parameter.

    transformers' fused experts and routers count them in `num_experts`.
    """
    if not isinstance(module, ExpertsFfn) and not hasattr(module, "num_experts"):
        return []
    own = module.named_parameters(recurse=False)
    return [parameter for name, parameter in own if parameter.dim() >= 2 and not name.endswith("bias")]


def set_rates(optimizer: torch.optim.Optimizer, lr: float, decay: float) -> None:
    """This step's learning rate and weight decay."""
    for group in optimizer.param_groups:
        group["lr"] = lr
        group["weight_decay"] = decay if group["decays"] else 0.0


def optimizer_tensors(model: TrainableModel, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as flat tensors, "<parameter>.<moment>"."""
    state = optimizer.state
    return {
        f"{name}.{moment}": state[parameter][moment]
        for name, parameter in model.named_parameters()
        if parameter in state
        for moment in MOMENTS
    }


def load_optimizer(model: TrainableModel, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`."""
    for name, parameter in model.named_parameters():
        if f"{name}.step" in tensors:
            moments = {moment: tensors[f"{name}.{moment}"].to(parameter.device) for moment in MOMENTS}
            optimizer.state[parameter] = spread_as(moments, dict.fromkeys(MOMENTS, parameter))
