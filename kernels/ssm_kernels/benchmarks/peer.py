"""transformers' model with the weights of our model, as an independent implementation for comparison."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ssm.base.errors import UserError
from ssm.models.backbone import LanguageModel
from ssm.models.formats import FORMATS
from ssm.models.formats.format import Piece

# transformers replaces these by fla's Triton kernels where fla is installed. Triton has no CPUs.
REPLACED = ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule")


@dataclass(frozen=True)
class Peer:
    """transformers' model, and which of its tensors hold which rows of ours.

    Called with tokens (B, T), the model returns an object with `logits` (B, T, V). V is rounded up like that of our
    embedding.
    """

    model: nn.Module
    pieces: list[Piece]

    def converted(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors with the names and shapes of our parameters -> the same with their names and shapes."""
        return {piece.names[0]: piece.take(ours[piece.ours]) for piece in self.pieces if piece.ours in ours}


def transformers_peer(model: LanguageModel, form: str, **options: Any) -> Peer:
    """transformers' model with the weights of `model`.

    Args:
        form: the checkpoint format that describes it: "mamba", "mamba2", "qwen3_next", "recurrent_gemma" ...
        options: more keys of transformers' config.

    Raises:
        UserError: transformers or mambapy is not installed.
        CheckpointError: the format cannot describe `model`.
    """
    if options.get("use_mambapy") and importlib.util.find_spec("mambapy") is None:
        raise UserError("the comparison needs mambapy: pip install '.[bench]' in the clone")
    transformers = _transformers()
    described = FORMATS[form]
    config = described.config_of(model.spec, model.vocab_size)
    architecture = getattr(transformers, described.architecture)
    # Not AutoConfig: fla puts its own classes there.
    peer: nn.Module = architecture(architecture.config_class(**config, **options))
    _keep_pytorch(sys.modules[type(peer).__module__])
    weights = model.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    result = Peer(peer, described.pieces(model.spec, shapes))
    with torch.no_grad():
        for name, tensor in result.converted(weights).items():
            peer.get_parameter(name).copy_(tensor)
    return result


def _keep_pytorch(module: Any) -> None:
    """Undo the replacements in one of transformers' modules."""
    for name in REPLACED:
        if hasattr(module, name):
            setattr(module, name, inspect.unwrap(getattr(module, name)))


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise UserError("the comparison needs transformers: pip install '.[bench]' in the clone") from error
    transformers.utils.logging.set_verbosity_error()  # it warns that its CUDA kernels are missing
    return transformers
