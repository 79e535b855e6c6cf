"""transformers' Mamba and Mamba-2 with the weights of our model, as independent implementations for comparison."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import torch
from torch import nn

from ssm.base.errors import UserError
from ssm.models.backbone import LanguageModel
from ssm.models.formats import FORMATS

# Our name of a parameter -> their name.
NAMES = {row.ours: str(row.theirs) for key in ("mamba", "mamba2") for row in FORMATS[key].rows}


def transformers_mamba2(model: LanguageModel, chunk: int) -> nn.Module:
    """A transformers.Mamba2ForCausalLM with the weights of `model`. Its scan takes `chunk` tokens at a time.

    Called with tokens (B, T), it returns an object with `logits` (B, T, V). V is rounded up like that of our embedding.

    Raises:
        UserError: transformers is not installed, or its Mamba-2 cannot express `model`.
    """
    return _with_weights("Mamba2", model, chunk_size=chunk)


def transformers_mamba(model: LanguageModel, mambapy: bool) -> nn.Module:
    """A transformers.MambaForCausalLM with the weights of `model`. It scans with mambapy, in parallel, or step by step.

    Raises:
        UserError: transformers or mambapy is not installed, or transformers' Mamba cannot express `model`.
    """
    if mambapy and importlib.util.find_spec("mambapy") is None:
        raise UserError("the comparison needs mambapy: pip install 'ssm-length[bench]'")
    # Only compiled code uses transformers' associative scan.
    return _with_weights("Mamba", model, use_mambapy=mambapy, use_associative_scan=False)


def peer_name(name: str) -> str:
    """transformers' name of our parameter `name`."""
    layer = re.match(r"layers\.(\d+)\.", name)
    if layer is None:
        return NAMES[name]
    return NAMES[name.replace(layer[1], "{i}", 1)].format(i=layer[1])


def _with_weights(name: str, model: LanguageModel, **options: Any) -> nn.Module:
    transformers = _transformers()
    form = FORMATS[name.lower()]
    config = form.config_of(model.spec, model.vocab_size)
    peer: nn.Module = getattr(transformers, f"{name}ForCausalLM")(
        getattr(transformers, f"{name}Config")(**config, **options)
    )
    weights = model.state_dict()
    with torch.no_grad():
        for piece in form.pieces(model.spec, {ours: tuple(tensor.shape) for ours, tensor in weights.items()}):
            peer.get_parameter(piece.names[0]).copy_(piece.take(weights[piece.ours]))
    return peer


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise UserError("the comparison needs transformers: pip install 'ssm-length[bench]'") from error
    transformers.utils.logging.set_verbosity_error()  # it warns that its CUDA kernels are missing
    return transformers
