"""The influence of each token on the output at the last token: norms of Jacobians, computed by backward passes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ssm.models.backbone import LanguageModel


def influence(model: LanguageModel, tokens: Tensor, directions: Tensor | None = None) -> Tensor:
    """|dy_T/dx_s| for every s (influence score, bn Section 3.1), as the Frobenius norm of the Jacobian.

    y_T is the activation of the last token after the final norm. x_s is the input of the first layer at token s. Each
    backward pass over one graph gives one row of the Jacobians of all tokens, without approximation.

    Args:
        tokens: (B, T), from the zero state.
        directions: (K, D), orthonormal. K rows estimate the norm: their squares are multiplied by D / K. None: all D
            coordinates.

    Returns:
        (B, T), float64.
    """
    entered: list[Tensor] = []

    def leaf(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        entered.append(inputs[0].detach().requires_grad_())  # (B, T, D)
        return (entered[0], *inputs[1:])

    handle = model.layers[0].register_forward_pre_hook(leaf)
    try:
        with torch.enable_grad():
            last = model.hidden(tokens)[0][:, -1]  # (B, D)
    finally:
        handle.remove()
    width = last.shape[1]
    rows = torch.eye(width, dtype=last.dtype) if directions is None else directions.to(last.dtype)
    squares = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)  # (B, T)
    for number, row in enumerate(rows.to(last.device), 1):
        # Sequences are independent: the gradient of their sum contains the gradient of each.
        (gradient,) = torch.autograd.grad(last, entered, row.expand_as(last), retain_graph=number < len(rows))
        squares += gradient.double().square().sum(-1)
    return (squares * (width / len(rows))).sqrt()
