"""fla's own models on the CPU. PyTorch functions replace its Triton kernels.

Code of fla: names, shapes, projections, mixes, gates and norms of each layer, frequencies of rotary positions, and the
residual stream. Its naive functions compute the recurrences of all models except RetNet, the decays of Gated DeltaNet
and KDA, RWKV-7's mixes, keys and bonus, and the gated norm of Mamba-2. Mamba-2's naive function shares B and C among
other heads than its kernel if it has several groups.

Written here from their definitions: norms, the gated norm, activations, token shift, short convolutions, rotations, and
RetNet's recurrence (fla's naive function needs equal widths of keys and values).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from models.formats import round_trip
from torch import Tensor, nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import fla.layers.delta_net
    import fla.layers.gated_deltanet
    import fla.layers.gla
    import fla.layers.kda
    import fla.layers.multiscale_retention
    import fla.layers.rwkv6
    import fla.layers.rwkv7
    import fla.models
    import fla.models.rwkv6.modeling_rwkv6
    import fla.models.rwkv7.modeling_rwkv7
    import fla.modules.causal_conv1d.ops
    import fla.modules.mlp
    from fla.modules.norm import fused_norm_gate, layernorm, layernorm_gated
    from fla.modules.rotary import RotaryEmbedding
    from fla.ops.delta_rule.naive import delta_rule_recurrence
    from fla.ops.gated_delta_rule.gate import naive_gdn_gate
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
    from fla.ops.generalized_delta_rule.dplr.naive import dplr_recurrence
    from fla.ops.gla.naive import naive_recurrent_gla
    from fla.ops.kda.gate import naive_kda_gate
    from fla.ops.kda.naive import naive_recurrent_kda
    from fla.ops.rwkv6.recurrent_naive import naive_recurrent_rwkv6
    from fla.ops.rwkv7.fused_addcmul import torch_addcmul_rwkv7
    from fla.ops.rwkv7.fused_k_update import k_update_ref
    from fla.ops.rwkv7.gate_output_correction import gate_output_correction_ref


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def norm(self: Any, x: Tensor, residual: Tensor | None = None, prenorm: bool = False, **_: Any) -> Any:
    """RMSNorm or LayerNorm of x + residual. With `prenorm` it also returns x + residual."""
    x = x if residual is None else x + residual
    if isinstance(self, layernorm.LayerNorm):
        y = F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)
    else:
        y = rms_norm(x, self.weight, self.eps)
    return (y, x) if prenorm else y


def group_norm(self: Any, x: Tensor) -> Tensor:
    return F.group_norm(x.flatten(0, 1), self.num_groups, self.weight, self.bias, self.eps).view_as(x)


def gated_norm(self: Any, x: Tensor, g: Tensor) -> Tensor:
    return rms_norm(x, self.weight, self.eps) * (torch.sigmoid(g) if self.activation == "sigmoid" else F.silu(g))


def mamba2_norm(self: Any, x: Tensor, z: Tensor) -> Tensor:
    order = {"group_size": self.group_size, "norm_before_gate": self.norm_before_gate}
    return layernorm_gated.rms_norm_ref(x, self.weight, None, z, self.eps, **order)


def recurrent_gla(*, q: Tensor, k: Tensor, v: Tensor, gk: Tensor, **_: Any) -> tuple[Tensor, None]:
    return naive_recurrent_gla(q, k, v, gk)[0], None


def recurrent_rwkv6(*, r: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor, **_: Any) -> tuple[Tensor, None]:
    r, k, v, w = (x.transpose(1, 2) for x in (r, k, v, w))
    return naive_recurrent_rwkv6(r, k, v, w, u, scale=1.0)[0].transpose(1, 2), None


def l2_norm(x: Tensor) -> Tensor:
    return x / torch.sqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def short_convolution(x: Tensor, weight: Tensor, bias: None = None, **_: Any) -> tuple[Tensor, None]:
    x = F.pad(x.mT, (weight.shape[-1] - 1, 0))
    return F.silu(F.conv1d(x, weight.unsqueeze(1), groups=len(weight))).mT, None


def recurrent_delta(*, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, **_: Any) -> tuple[Tensor, None]:
    q, k, v, beta = (x.transpose(1, 2) for x in (l2_norm(q), l2_norm(k), v, beta))
    return delta_rule_recurrence(q, k, v, beta)[0].transpose(1, 2), None


def strength(beta: Tensor, allow_neg_eigval: bool) -> Tensor:
    return beta.sigmoid() * (2 if allow_neg_eigval else 1)


def recurrent_gated_delta(
    *, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, A_log: Tensor, dt_bias: Tensor,
    allow_neg_eigval: bool, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    q, k = (l2_norm(x).repeat_interleave(v.shape[2] // k.shape[2], 2) for x in (q, k))
    g = naive_gdn_gate(g, A_log, dt_bias)
    return naive_recurrent_gated_delta_rule(q, k, v, strength(beta, allow_neg_eigval), g)[0], None


def recurrent_kda(
    *, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, A_log: Tensor, dt_bias: Tensor,
    allow_neg_eigval: bool, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    g = naive_kda_gate(g, A_log, dt_bias)
    return naive_recurrent_kda(l2_norm(q), l2_norm(k), v, g, strength(beta, allow_neg_eigval))[0], None


def recurrent_dplr(
    *, r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, **_: Any
) -> tuple[Tensor, None]:
    r, w, k, v, a, b = (x.transpose(1, 2) for x in (r, w, k, v, a, b))
    r = r * r.shape[-1] ** 0.5  # the naive function divides by it
    return dplr_recurrence(r, k, v, a, b, w)[0].transpose(1, 2), None


def recurrent_rwkv7(*, kk: Tensor, a: Tensor, **others: Any) -> tuple[Tensor, None]:
    return recurrent_dplr(a=-kk, b=kk * a, **others)


def retention(*, q: Tensor, k: Tensor, v: Tensor, **_: Any) -> tuple[Tensor, None]:
    """y_t = sum_s gamma^(t - s) (q_t . k_s / sqrt(K)) v_s, gamma = 1 - 2^(-5 - h) (Sun et al. 2023, eq. 5 and 8)."""
    T, H, K = q.shape[1:]
    gamma = 1 - 2.0 ** (-5 - torch.arange(H, dtype=torch.float64))  # (H,)
    distance = torch.arange(T)[:, None] - torch.arange(T)  # (T, T)
    decay = torch.where(distance < 0, 0.0, gamma[:, None, None] ** distance.clamp_min(0))  # (H, T, T)
    scores = torch.einsum("bthk,bshk->bhts", q, k) * K**-0.5 * decay.to(q.dtype)
    return torch.einsum("bhts,bshv->bthv", scores, v), None


def rotated(self: Any, q: Tensor, k: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
    """Rotate each pair (i, i + K / 2), as a complex number, by the position times its frequency."""
    angles = torch.arange(q.shape[1])[:, None] * self._compute_inv_freq()  # (T, K / 2)
    turn = torch.polar(torch.ones_like(angles), angles).unsqueeze(1)  # (T, 1, K / 2)

    def turned(x: Tensor) -> Tensor:
        pairs = torch.complex(*x.chunk(2, -1)) * turn
        return torch.cat([pairs.real, pairs.imag], -1)

    return turned(q), turned(k)


def shifted(x: Tensor, *_: Any) -> Tensor:
    return F.pad(x, (0, 0, 1, 0))[:, :-1] - x


def shifted_with_last(x: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    return shifted(x), x[:, -1:]


PLAIN: round_trip.Replacements = (
    (layernorm.RMSNorm, "forward", norm),
    (layernorm.LayerNorm, "forward", norm),
    (layernorm.GroupNorm, "forward", group_norm),
    (fused_norm_gate.FusedRMSNormGated, "forward", gated_norm),
    (layernorm_gated.RMSNormGated, "forward", mamba2_norm),
    (fla.modules.mlp, "swiglu_linear", lambda gate, y, weight, bias: F.linear(F.silu(gate) * y, weight, bias)),
    (fla.modules.mlp, "swiglu", lambda gate, y: F.silu(gate) * y),
    (fla.layers.gla, "fused_recurrent_gla", recurrent_gla),
    (fla.layers.rwkv6, "fused_recurrent_rwkv6", recurrent_rwkv6),
    (fla.layers.rwkv6, "token_shift", shifted),
    (fla.models.rwkv6.modeling_rwkv6, "token_shift", shifted),
    (fla.layers.multiscale_retention, "fused_recurrent_retention", retention),
    (fla.layers.multiscale_retention, "chunk_retention", retention),  # in training, or for more than 64 tokens
    (RotaryEmbedding, "forward", rotated),
    (fla.modules.causal_conv1d.ops, "causal_conv1d", short_convolution),
    (fla.layers.gated_deltanet, "causal_conv1d", short_convolution),
    (fla.layers.delta_net, "fused_recurrent_delta_rule", recurrent_delta),
    (fla.layers.delta_net, "chunk_delta_rule", recurrent_delta),
    (fla.layers.gated_deltanet, "fused_recurrent_gated_delta_rule", recurrent_gated_delta),
    (fla.layers.gated_deltanet, "chunk_gated_delta_rule", recurrent_gated_delta),
    (fla.layers.kda, "fused_recurrent_kda", recurrent_kda),
    (fla.layers.kda, "chunk_kda", recurrent_kda),
    (fla.layers.rwkv7, "token_shift", shifted_with_last),
    (fla.models.rwkv7.modeling_rwkv7, "token_shift", shifted_with_last),
    (fla.layers.rwkv7, "fused_addcmul_rwkv7", torch_addcmul_rwkv7),
    (fla.layers.rwkv7, "fused_k_rwkv7", k_update_ref),
    (fla.layers.rwkv7, "l2_norm", l2_norm),
    (fla.layers.rwkv7, "fused_mul_recurrent_rwkv7", recurrent_rwkv7),
    (fla.layers.rwkv7, "chunk_rwkv7", recurrent_dplr),
    (fla.layers.rwkv7, "gate_output_correction", gate_output_correction_ref),
)


@contextmanager
def plain(peer: nn.Module) -> Iterator[None]:
    """fla without its kernels. The activations of the layers are replaced for good."""
    for module in peer.modules():
        if hasattr(module, "gate_fn") and not isinstance(module.gate_fn, nn.Module):
            module.gate_fn = F.silu
        if type(module).__name__ in ("RWKV6FeedForward", "RWKV7FeedForward"):
            module.act_fn = lambda x: x.relu().square()
        if type(module).__name__ in ("Mamba", "Mamba2"):
            module.act = F.silu
    with round_trip.replaced(PLAIN):
        yield


def made(kind: str, **config: Any) -> nn.Module:
    """A model of this class with random weights."""
    torch.manual_seed(0)
    config = getattr(fla.models, f"{kind}Config")(vocab_size=round_trip.VOCABULARY, **config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # RWKV-6 and RWKV-7 warn that they are not the authors' models
        return round_trip.moved(getattr(fla.models, f"{kind}ForCausalLM")(config))


def run(peer: nn.Module, tokens: Tensor) -> Tensor:
    """Logits (B, T, V)."""
    with torch.no_grad(), plain(peer):
        return peer(tokens, use_cache=False).logits


def load(folder: Path) -> nn.Module:
    """Load a folder with fla, which finds no missing and no unknown tensors."""
    import transformers

    model_class = getattr(fla.models, transformers.AutoConfig.from_pretrained(folder).architectures[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer, info = model_class.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return peer.eval()


def check(peer: nn.Module, tmp_path: Path) -> Any:
    """The round trips of a model, in float32 and in bfloat16."""
    return round_trip.check_saved(peer, tmp_path, load, run)
