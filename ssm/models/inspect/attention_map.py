"""The attention map and mask of a layer (mi eq. 8): y_i is the sum over j <= i of map[i, j] times value j."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from ssm_kernels import delta_scan
from torch import Tensor

from ssm.models.mixers.attention import Attention
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.coefficients import Calls, Coefficients, scans_of


@torch.no_grad()
def attention_map(mixer: Mixer, u: Tensor) -> Tensor:
    """M[i, j] = Re(C_i^T A_i ... A_{j+1} key_j) for a recurrence, softmax(q k^T / sqrt(K)) for attention.

    For the delta rule, A_t is a matrix, and the key is beta_t k_t.

    Args:
        mixer: a layer's mixer, from the zero state.
        u: its inputs, (B, T, D).

    Returns:
        (B, H, T, T), zero above the diagonal. Heads are the channels of Mamba, S4D, DSS and RG-LRU. The values of H3
        are its products of keys and values. mi shows the mean over heads.

    Raises:
        ValueError: the outputs are not weighted sums of values in each head (GRU, S5, RWKV-4).
    """
    if not mixer.spec.has_map:
        raise ValueError(f"a mixer of kind '{mixer.spec.kind}' has no attention map: its readout is not a sum by head")
    if isinstance(mixer, Attention):
        return mixer.weights(u)
    if mixer.spec.taxonomy.scan == "delta_scan":
        return _delta_map(scans_of(mixer, u))
    recurrence = mixer.coefficients(u)
    assert recurrence.C is not None
    rows = []
    for t, (paths, key) in enumerate(_paths(recurrence, u.shape[1])):
        C = recurrence.C[:, t if recurrence.C.shape[1] > 1 else 0]  # (B, H, N)
        row = (C.unsqueeze(-1) * paths).sum(2)  # (B, H, T)
        if recurrence.bonus is not None:
            row[..., t] = (C * recurrence.bonus * key).sum(-1)
        rows.append(row.real if row.is_complex() else row)
    weights = torch.stack(rows, 2)
    if recurrence.normalizer_eps is not None:
        weights = weights / (weights.sum(-1, keepdim=True) + recurrence.normalizer_eps)
    return weights


@torch.no_grad()
def attention_mask(mixer: Mixer, u: Tensor) -> Tensor:
    """mi's mask: the decays A_i ... A_{j+1}, averaged over the state dimension N, (B, H, T, T); 1 on the diagonal.

    Attention's mask is 1 for the tokens that a token sees. Complex decays count by their absolute value. Arguments are
    those of `attention_map`.

    Raises:
        ValueError: the mixer has no diagonal linear recurrence (GRU, delta rule).
    """
    if isinstance(mixer, Attention):
        seen = mixer.attended(u, None, None).full_mask
        return seen.to(u.dtype).expand(u.shape[0], mixer.heads, -1, -1)
    recurrence = mixer.coefficients(u)
    sizes = recurrence.A.abs()
    decays = Coefficients(sizes, torch.ones_like(sizes), recurrence.value, bonus=recurrence.bonus)
    rows = []
    for t, (paths, _) in enumerate(_paths(decays, u.shape[1])):
        row = paths.mean(2)  # (B, H, T)
        if recurrence.bonus is not None:
            row[..., t] = 1.0  # a token sees itself, for every bonus
        rows.append(row)
    return torch.stack(rows, 2)


def _delta_map(scans: Calls) -> Tensor:
    """The map, as the scan of unit vectors: the scan is linear in its values."""
    inputs, options = scans[0][1:]
    B, T, H = inputs.v.shape[:3]
    units = torch.eye(T, dtype=inputs.v.dtype, device=inputs.v.device).view(1, T, 1, T).expand(B, T, H, T)
    return delta_scan(**inputs._replace(v=units)._asdict(), **options._asdict())[0].transpose(1, 2)


def _paths(recurrence: Coefficients, length: int) -> Iterator[tuple[Tensor, Tensor]]:
    """For every step t: the keys of all tokens after their decay until t, (B, H, N, T), and the key of t, (B, H, N).

    Decays are multiplied step by step, because a decay of exactly 0 has no logarithm.
    """
    B = max(recurrence.A.shape[0], recurrence.key.shape[0], recurrence.value.shape[0])
    H = max(recurrence.A.shape[2], recurrence.key.shape[2], recurrence.value.shape[2])
    A, key = (x.expand(B, length, H, x.shape[-1]) for x in (recurrence.A, recurrence.key))
    paths = torch.zeros(B, H, key.shape[-1], length, dtype=torch.promote_types(A.dtype, key.dtype), device=key.device)
    for t in range(length):
        before, paths = paths, A[:, t].unsqueeze(-1) * paths
        paths[..., t] = key[:, t]
        yield (paths if recurrence.bonus is None else before), key[:, t]
