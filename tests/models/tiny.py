"""Small models with large random weights, for the tests of models and of initial states."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ssm.models.backbone import LanguageModel, build_model
from ssm.models.state import State
from ssm.specs.mixers.mamba2 import Mamba2Mixer
from ssm.specs.model import ModelSpec

VOCABULARY = 29


def spec(**changes: Any) -> ModelSpec:
    """The spec of a model. A change of a field of Mamba-2 applies to the mixer."""
    mixer = {name: value for name, value in changes.items() if name in Mamba2Mixer.model_fields}
    model = {name: value for name, value in changes.items() if name not in mixer}
    mixer = {"kind": "mamba2", "d_state": 6, "head_dim": 4, "n_groups": 2, "chunk": 5} | mixer
    return ModelSpec.model_validate(
        {"name": "tiny", "d_model": 16, "n_layers": 3, "mixer": mixer, "peak_lr": 1e-3} | model
    )


def eventful(model: LanguageModel, seed: int = 0) -> LanguageModel:
    """The model with noise on every weight, so that each has an effect, and logits have a scale of one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.4 if parameter.dim() == 2 else 0.2
            parameter += spread * torch.randn(parameter.shape, generator=generator)
            if name.endswith("dt_bias"):
                parameter += 3.0  # dt of about 0.3: states change within a few tokens
    return model


def model(seed: int = 0, **changes: Any) -> LanguageModel:
    """An eventful model in float32."""
    return eventful(build_model(spec(**changes), VOCABULARY, seed), seed)


def tokens(seed: int, batch: int, length: int) -> Tensor:
    """Random tokens (B, T)."""
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def random_state(like: State, seed: int) -> State:
    """A standard normal state of the same shapes."""
    generator = torch.Generator().manual_seed(seed)
    return like.map(lambda tensor: torch.randn(tensor.shape, generator=generator).to(tensor.dtype))


def flat(state: State) -> list[Tensor]:
    """Every tensor of a state, in the order of their names."""
    return [tensor for _, tensor in sorted(state.tensors().items())]
