"""The attention map and mask of a layer (mi eq. 8): y_i is the sum over j <= i of map[i, j] times the value of j."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from ssm_kernels import delta_scan
from torch import Tensor

from ssm.models.inspect.coefficients import Calls, Coefficients, coefficients, scans_of
from ssm.models.mixers.attention import Attention
from ssm.models.mixers.base import Mixer


@torch.no_grad()
def attention_map(mixer: Mixer, u: Tensor, resets: Tensor | None = None) -> Tensor:
    """M[i, j] = Re(C_i^T A_i ... A_{j+1} key_j) of a recurrence, softmax(q k^T / sqrt(K)) of attention.

    A_t may be a matrix (the delta rule); the key is then what a value is written with, beta_t k_t.

    Args:
        mixer: a layer's mixer, from the zero state.
        u: its inputs, (B, T, D).
        resets: (B, T) bool; True forgets all that came before step t.

    Returns:
        (B, H, T, T), zero above the diagonal; heads are the channels of Mamba, S4D, DSS and RG-LRU, and the
        values of H3 are its products of keys and values. mi shows the mean over heads.

    Raises:
        ValueError: the mixer's outputs are no sums of its values by head (GRU, S5, RWKV-4).
    """
    if isinstance(mixer, Attention):
        return mixer.weights(u, None, resets)
    if mixer.spec.taxonomy.scan == "delta_scan":
        return _delta_map(scans_of(mixer, u, None, resets))
    found = coefficients(mixer, u, None, resets)
    if found.C is None:
        raise ValueError(
            f"the readout of a mixer of kind '{mixer.spec.kind}' is no sum by head: it has no attention map"
        )
    rows = []
    for t, (paths, key) in enumerate(_paths(found, u.shape[1], resets)):
        C = found.C[:, t if found.C.shape[1] > 1 else 0]  # (B, H, N)
        row = (C.unsqueeze(-1) * paths).sum(2)  # (B, H, T)
        if found.bonus is not None:
            row[..., t] = (C * found.bonus * key).sum(-1)
        rows.append(row.real if row.is_complex() else row)
    weights = torch.stack(rows, 2)
    if found.normalizer_eps is not None:
        weights = weights / (weights.sum(-1, keepdim=True) + found.normalizer_eps)
    return weights


@torch.no_grad()
def attention_mask(mixer: Mixer, u: Tensor, resets: Tensor | None = None) -> Tensor:
    """mi's mask: the decays A_i ... A_{j+1}, averaged over the state dimension N, (B, H, T, T); 1 on the diagonal.

    Attention's mask says 1 for what a token sees; complex decays count by their size. Arguments as `attention_map`.

    Raises:
        ValueError: the mixer is no linear recurrence by state (GRU, delta rule).
    """
    if isinstance(mixer, Attention):
        seen = mixer._attend(u, None, resets)[3]  # (B, 1, T, T); None: all tokens before
        if seen is None:
            seen = torch.ones(u.shape[1], u.shape[1], dtype=torch.bool, device=u.device).tril()
        return seen.to(u.dtype).expand(u.shape[0], mixer.heads, -1, -1)
    found = coefficients(mixer, u, None, resets)
    sizes = found.A.abs()
    bare = Coefficients(sizes, torch.ones_like(sizes), found.value, bonus=found.bonus)
    rows = []
    for t, (paths, _) in enumerate(_paths(bare, u.shape[1], resets)):
        row = paths.mean(2)  # (B, H, T)
        if found.bonus is not None:
            row[..., t] = 1.0  # a token reads itself, whatever the bonus
        rows.append(row)
    return torch.stack(rows, 2)


def _delta_map(scans: Calls) -> Tensor:
    """The scan is linear in its values: of the unit vectors of all tokens it makes the rows of the map."""
    inputs, options = scans[0][1:]
    B, T, H = inputs.v.shape[:3]
    units = torch.eye(T, dtype=inputs.v.dtype, device=inputs.v.device).view(1, T, 1, T).expand(B, T, H, T)
    return delta_scan(**inputs._replace(v=units)._asdict(), **options._asdict())[0].transpose(1, 2)


def _paths(found: Coefficients, length: int, resets: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
    """For every step t: what it reads of each token's key, (B, H, N, T), and its own key, (B, H, N).

    By products alone, one step at a time: a decay of exactly 0 needs no logarithm.
    """
    B = max(found.A.shape[0], found.key.shape[0], found.value.shape[0])
    H = max(found.A.shape[2], found.key.shape[2], found.value.shape[2])
    A, key = (x.expand(B, length, H, x.shape[-1]) for x in (found.A, found.key))
    paths = torch.zeros(B, H, key.shape[-1], length, dtype=torch.promote_types(A.dtype, key.dtype), device=key.device)
    for t in range(length):
        before = paths if resets is None else paths.masked_fill(resets[:, t, None, None, None], 0.0)
        paths = A[:, t].unsqueeze(-1) * before
        paths[..., t] = key[:, t]
        yield (paths if found.bonus is None else before), key[:, t]
