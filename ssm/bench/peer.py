"""transformers' Mamba-2 with the weights of a model of ours: an independent implementation to compare with."""

from __future__ import annotations

import math

import torch
from torch import nn

from ssm.base.errors import UserError
from ssm.models.backbone import LanguageModel

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
    try:
        import transformers
    except ImportError as error:
        raise UserError("the comparison needs transformers: pip install 'ssm-length[dev]'") from error
    transformers.utils.logging.set_verbosity_error()  # it warns that its own CUDA kernels are not there
    spec, mixer = model.spec, model.spec.mixer
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
    peer: nn.Module = transformers.Mamba2ForCausalLM(config)
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
