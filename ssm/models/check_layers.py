"""Compare the layers of a model with their specs, before a run spends time on a mistake in an added mixer or ffn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from ssm_kernels.backends import use_backend
from torch import Tensor

from ssm.base.discovery import RegistryError, file_of
from ssm.models.backbone import LanguageModel
from ssm.models.mixers.base import Mixer
from ssm.models.sublayer import Sublayer


def check_layers(model: LanguageModel) -> None:
    """Count the weights of every mixer and ffn, read one token with it, and compare both with its spec.

    It changes no weights and draws no random numbers. The backend is "torch", because others may have to be compiled
    for a single token.

    Raises:
        RegistryError: the file and the difference.
    """
    u = next(model.parameters()).new_zeros(2, 1, model.spec.d_model)  # (B, T, D)
    different = {part.spec: part for part in model.modules() if isinstance(part, Sublayer)}  # one for each spec
    with torch.no_grad(), use_backend("torch"):
        for spec, sublayer in different.items():
            place = file_of(type(sublayer).__module__)
            weights, says = _numbers(sublayer.parameters()), spec.parameters(sublayer.d_model)
            if weights != says:
                raise RegistryError(f"{place}: {weights:,} parameters, its spec says {says:,}")
            _check_output(f"{place}: forward", sublayer, sublayer(u), u)
            _check_output(f"{place}: step", sublayer, sublayer.step(u[:, 0]), u[:, 0])


def _check_output(where: str, sublayer: Sublayer, output: Any, u: Tensor) -> None:
    """Check what a method returned for the inputs u, (B, T, D) or (B, D)."""
    is_pair = isinstance(output, tuple) and len(output) == 2 and isinstance(output[1], dict)
    if not (is_pair and all(isinstance(tensor, Tensor) for tensor in (output[0], *output[1].values()))):
        raise RegistryError(f"{where}: expected y and the state, a dictionary of tensors")
    y, state = output
    if y.shape != u.shape:
        raise RegistryError(f"{where}: y is {_sizes(y.shape)}, its input is {_sizes(u.shape)}")
    for name, tensor in state.items():
        if tensor.shape[:1] != u.shape[:1]:
            raise RegistryError(f"{where}: the state '{name}' is {_sizes(tensor.shape)} for a batch of {len(u)}")
    spec, D = sublayer.spec, sublayer.d_model
    if isinstance(sublayer, Mixer):
        if "memory" not in state:
            raise RegistryError(f"{where}: the state must have the name 'memory', found {sorted(state)}")
        if spec.taxonomy.decay == "cache":  # its shape and size depend on the window and on the tokens read
            return
        memory, shape = tuple(state["memory"].shape), (len(u), *spec.state_shape(D))
        if memory != shape:
            raise RegistryError(f"{where}: the state 'memory' is {_sizes(memory)}, its spec says {_sizes(shape)}")
    counted = {name: tensor for name, tensor in state.items() if tensor.dtype != torch.bool}
    numbers, says = _numbers(counted.values()) // len(u), spec.state_numbers(D, 1)
    if numbers != says:
        raise RegistryError(f"{where}: the state {sorted(counted)} has {numbers:,} numbers, its spec says {says:,}")


def _numbers(tensors: Iterable[Tensor]) -> int:
    """Size of all tensors together."""
    return sum(tensor.numel() for tensor in tensors)


def _sizes(shape: Sequence[int]) -> str:
    """A shape in words, without the comma of a tuple of one."""
    return f"({', '.join(map(str, shape))})"
