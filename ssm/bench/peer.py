"""transformers' Mamba and Mamba-2 with the weights of a model of ours: independent implementations to compare with."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import torch
from torch import nn

from ssm.base.errors import UserError
from ssm.models.backbone import LanguageModel
from ssm.specs.mixers.mamba1 import Mamba1Mixer
from ssm.specs.mixers.mamba2 import Mamba2Mixer

# Our name of a parameter becomes theirs by these replacements, in this order.
NAMES = (
    ("embedding.", "backbone.embeddings."),
    ("layers.", "backbone.layers."),
    ("mixer.conv_", "mixer.conv1d."),
    ("mixer.norm_", "mixer.norm."),
    ("head.", "lm_head."),
)


def transformers_mamba2(model: LanguageModel, chunk: int) -> nn.Module:
    """A transformers.Mamba2ForCausalLM that computes what `model` does; its scan takes `chunk` tokens at a time.

    Called with tokens (B, T) it returns an object whose `logits` are (B, T, V), V rounded up as our embedding is.

    Raises:
        UserError: transformers is not installed.
    """
    transformers = _transformers()
    spec, mixer = model.spec, model.spec.mixer
    assert isinstance(mixer, Mamba2Mixer)
    config = transformers.Mamba2Config(
        vocab_size=model.embedding.num_embeddings,
        hidden_size=spec.d_model,
        num_hidden_layers=spec.n_layers,
        num_heads=mixer.expand * spec.d_model // mixer.head_dim,
        head_dim=mixer.head_dim,
        state_size=mixer.d_state,
        expand=mixer.expand,
        n_groups=mixer.n_groups,
        conv_kernel=mixer.d_conv,
        layer_norm_epsilon=spec.norm_eps,
        time_step_limit=(mixer.dt_limit[0], mixer.dt_limit[1] or math.inf),
        tie_word_embeddings=spec.tie_embeddings,
        chunk_size=chunk,
    )
    return _with_weights(transformers.Mamba2ForCausalLM(config), model)


def transformers_mamba(model: LanguageModel, mambapy: bool) -> nn.Module:
    """A transformers.MambaForCausalLM that computes what `model` does, with mambapy's parallel scan or step by step.

    Raises:
        UserError: transformers or mambapy is not installed.
    """
    transformers = _transformers()
    if mambapy and importlib.util.find_spec("mambapy") is None:
        raise UserError("the comparison needs mambapy: pip install 'ssm-length[bench]'")
    spec, mixer = model.spec, model.spec.mixer
    assert isinstance(mixer, Mamba1Mixer)
    config = transformers.MambaConfig(
        vocab_size=model.embedding.num_embeddings,
        hidden_size=spec.d_model,
        num_hidden_layers=spec.n_layers,
        state_size=mixer.d_state,
        expand=mixer.expand,
        conv_kernel=mixer.d_conv,
        time_step_rank=mixer.rank(spec.d_model),
        layer_norm_epsilon=spec.norm_eps,
        tie_word_embeddings=spec.tie_embeddings,
        use_mambapy=mambapy,
        use_associative_scan=False,  # compiled code alone takes it
    )
    return _with_weights(transformers.MambaForCausalLM(config), model)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise UserError("the comparison needs transformers: pip install 'ssm-length[bench]'") from error
    transformers.utils.logging.set_verbosity_error()  # it warns that its own CUDA kernels are not there
    return transformers


def _with_weights(peer: nn.Module, model: LanguageModel) -> nn.Module:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            theirs = peer.get_parameter(peer_name(name))
            theirs.copy_(parameter.view_as(theirs))
    return peer


def peer_name(name: str) -> str:
    """What transformers calls our parameter `name`."""
    if name == "norm.weight":
        return "backbone.norm_f.weight"
    for ours, theirs in NAMES:
        name = name.replace(ours, theirs)
    return name
