"""AdamW, with weight decay only for the matrices of linear layers, and its state by parameter name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ssm.models.ffn.experts import ExpertsFfn
from ssm.models.trainable import TrainableModel
from ssm.specs.training import TrainingSpec
from ssm.training.parallel import sharded_like

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def build_optimizer(model: TrainableModel, training: TrainingSpec) -> torch.optim.AdamW:
    """AdamW with two parameter groups; only the first one decays.

    It holds the weights of nn.Linear, and the matrices of experts and their routers. The second group holds embeddings
    (also if the head shares them), norms, biases, the parameters of recurrences, and matrices that a mixer stores as
    plain parameters: those of a GRU, the gate blocks of RG-LRU, the low-rank maps of RWKV-6.
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
    """Matrices that a module of experts stores as plain parameters, one parameter for all experts.

    transformers' fused experts and routers have the attribute `num_experts`.
    """
    if not isinstance(module, ExpertsFfn) and not hasattr(module, "num_experts"):
        return []
    own = module.named_parameters(recurse=False)
    return [parameter for name, parameter in own if parameter.dim() >= 2 and not name.endswith("bias")]


def set_rates(optimizer: torch.optim.Optimizer, lr: float, decay: float) -> None:
    """Set the learning rate and weight decay of a step."""
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
            optimizer.state[parameter] = sharded_like(moments, dict.fromkeys(MOMENTS, parameter))
