"""The gated scan: a matrix state with a scalar decay per head (Mamba-2's SSD, RetNet, linear attention).

    S_t = a_t S_{t-1} + k_t v_t^T        S: (K, V) per head
    y_t = q_t^T S_t

Mamba-2 (Dao & Gu 2024, Section 6) is q = C, k = B, v = dt * x, a = exp(dt * A), K = d_state N, V = head_dim P.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ssm_kernels import reference

# exp(-200) is 0 in float32 and negligible in float64; a decay of exactly 0 (log_decay = -inf) becomes this, so that
# the products below never meet inf * 0.
SMALLEST_LOG_DECAY = -200.0


def gated_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    h0: Tensor | None = None,
    *,
    chunk: int = 32,
    backend: str = "torch",
) -> tuple[Tensor, Tensor]:
    """Scan a whole sequence from `h0` to its final state; gradients flow through every input and both outputs.

    Args:
        q: queries, (B, T, G, K); C of Mamba-2. Head h reads group h // (H / G).
        k: keys, (B, T, G, K); B of Mamba-2.
        v: values, (B, T, H, V); dt * x of Mamba-2.
        log_decay: log a_t <= 0, (B, T, H). -inf is a decay of exactly 0: the state is forgotten before step t.
        h0: initial state, (B, H, K, V); None is zero.
        chunk: tokens a chunk, for backend "torch"; changes speed and rounding only.
        backend: "torch" (chunked) or "reference" (one step at a time).

    Returns:
        y (B, T, H, V) in the dtype of `v`, and the final state (B, H, K, V), at least in float32.

    Raises:
        ValueError: shapes that do not fit, a chunk below 1, or an unknown backend.
    """
    _check_shapes(q, k, v, log_decay, h0)
    if chunk < 1:
        raise ValueError(f"gated_scan: chunk must be at least 1, got {chunk}")
    dtype = torch.promote_types(v.dtype, torch.float32)
    out_dtype = v.dtype
    q, k, v, log_decay = (x.to(dtype) for x in (q, k, v, log_decay))
    h0 = None if h0 is None else h0.to(dtype)
    with torch.autocast(v.device.type, enabled=False):  # it would run the matrix products in half precision
        if backend == "torch":
            y, state = _chunked(q, k, v, log_decay, h0, chunk)
        elif backend == "reference":
            y, state = reference.gated_scan(q, k, v, log_decay, h0)
        else:
            raise ValueError(f"gated_scan: unknown backend '{backend}', expected torch or reference")
    return y.to(out_dtype), state


def _chunked(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, h0: Tensor | None, chunk: int
) -> tuple[Tensor, Tensor]:
    """All chunks of Q tokens at once, then one short recurrence over the chunks' states.

    Nothing is divided by a decay and no sum of logs is subtracted from another: every pair's log decay is a sum of
    its own terms, so that neither strong nor vanishing decays lose precision (`_pair_sums`).
    """
    B, T, H, V = v.shape
    G, K = k.shape[2:]
    R = H // G  # heads that share a group's q and k
    Q = min(chunk, T)
    if T % Q:  # tokens with k = v = 0 and a decay of 1 leave the state as it is
        pad = Q - T % Q
        q, k, v = (F.pad(x, (0, 0, 0, 0, 0, pad)) for x in (q, k, v))
        log_decay = F.pad(log_decay, (0, 0, 0, pad))
    C = v.shape[1] // Q

    q = q.view(B, C, Q, G, K).transpose(2, 3)  # (B, C, G, Q, K)
    k = k.view(B, C, Q, G, K).transpose(2, 3)  # (B, C, G, Q, K)
    v = v.view(B, C, Q, H, V).transpose(2, 3)  # (B, C, H, Q, V)
    log_decay = log_decay.clamp_min(SMALLEST_LOG_DECAY).view(B, C, Q, H).transpose(2, 3)  # (B, C, H, Q)

    sums, mask = _pair_sums(Q, v.dtype, v.device)
    decay = torch.addmm(mask, log_decay.reshape(-1, Q), sums).exp().view(B, C, H, Q, Q + 1)
    from_start = decay[..., 0]  # (B, C, H, Q): from the state before the chunk to token i
    between = decay[..., 1:]  # (B, C, H, Q, Q): from token j to token i, 0 for j > i
    to_end = decay[..., -1, 1:]  # (B, C, H, Q): from token j to the chunk's last token

    scores = q @ k.transpose(-1, -2)  # (B, C, G, Q, Q), once per group
    weights = (scores.unsqueeze(3) * between.view(B, C, G, R, Q, Q)).view(B, C, H, Q, Q)
    y = weights @ v  # (B, C, H, Q, V)
    added = k.transpose(-1, -2).unsqueeze(3) @ (v * to_end.unsqueeze(-1)).view(B, C, G, R, Q, V)  # (B, C, G, R, K, V)
    added = added.view(B, C, H, K, V)

    if C == 1 and h0 is None:
        return y.transpose(2, 3).reshape(B, Q, H, V)[:, :T], added[:, 0]
    whole = from_start[..., -1, None, None]  # (B, C, H, 1, 1): across the whole chunk
    state = v.new_zeros(B, H, K, V) if h0 is None else h0
    before = []
    for c in range(C):
        before.append(state)
        state = torch.addcmul(added[:, c], whole[:, c], state)
    entering = torch.stack(before, 1).view(B, C, G, R, K, V)  # the state that each chunk starts from
    carried = (q.unsqueeze(3) @ entering).view(B, C, H, Q, V)
    y = torch.addcmul(y, carried, from_start.unsqueeze(-1))
    return y.transpose(2, 3).reshape(B, C * Q, H, V)[:, :T], state


@lru_cache(maxsize=32)
@torch.inference_mode(False)  # made during inference, kept for training
def _pair_sums(Q: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """The constant matrix that sums log decays over every pair, and the causal mask that goes with it.

    Column (i, j) of `sums` (Q, Q * (Q + 1)) holds ones at the steps s with j <= s <= i: multiplied from the left by
    a row of log decays it gives the log decay from just before step j to step i. Column j = 0 therefore starts at
    the state before the chunk, and column j + 1 at token j. `mask` (1, Q * (Q + 1)) is -inf where token j comes
    after token i. A product with a constant is one GEMM, forward and backward, and adds each pair's own terms only.
    """
    step = torch.arange(Q)
    i, j, s = step[:, None, None], torch.arange(Q + 1)[None, :, None], step[None, None, :]
    sums = ((j <= s) & (s <= i)).to(dtype).view(-1, Q).t().contiguous()  # (Q, Q * (Q + 1))
    after = torch.arange(Q + 1)[None, :] - 1 > step[:, None]  # (Q, Q + 1)
    mask = torch.zeros(Q, Q + 1, dtype=dtype).masked_fill(after, float("-inf")).view(1, -1)
    return sums.to(device), mask.to(device)


def _check_shapes(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, h0: Tensor | None) -> None:
    if v.dim() != 4 or k.dim() != 4 or q.shape != k.shape:
        raise ValueError(f"gated_scan: q and k are (B, T, G, K), v is (B, T, H, V); got {_shapes(q=q, k=k, v=v)}")
    B, T, H, V = v.shape
    if k.shape[:2] != (B, T) or T < 1 or H % k.shape[2]:
        raise ValueError(f"gated_scan: B, T must agree, T >= 1, and G must divide H; got {_shapes(k=k, v=v)}")
    if log_decay.shape != (B, T, H):
        raise ValueError(f"gated_scan: log_decay is (B, T, H) = {(B, T, H)}; got {_shapes(log_decay=log_decay)}")
    if h0 is not None and h0.shape != (B, H, k.shape[3], V):
        raise ValueError(f"gated_scan: h0 is (B, H, K, V) = {(B, H, k.shape[3], V)}; got {_shapes(h0=h0)}")


def _shapes(**tensors: Tensor) -> str:
    return ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
