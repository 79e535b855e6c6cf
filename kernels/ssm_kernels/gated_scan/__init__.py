"""The gated scan: a matrix state with decays per head or per key (Mamba-2, GLA, RWKV-6, RetNet, linear attention).

    S_t = diag(a_t) S_{t-1} + k_t v_t^T        S: (K, V) per head
    y_t = q_t^T S_t                            with RWKV-6's bonus u: y_t = q_t^T (S_{t-1} + diag(u) k_t v_t^T)

Mamba-2 (Dao & Gu 2024, Section 6) is q = C, k = B, v = dt * x, a = exp(dt * A), K = d_state N, V = head_dim P.
"""

from __future__ import annotations

from torch import Tensor

from ssm_kernels.gated_scan.inputs import Inputs, Options
from ssm_kernels.matrix_scan import check_matrix_scan, outputs
from ssm_kernels.operators import Operator

SAYS = (
    "q and k are (B, T, G, K), v (B, T, H, V) where G > 0 divides H, and K > 0, "
    "log_decay (H,), (B, T, H) or (B, T, H, K), h0 (B, H, K, V), bonus (H, K), resets (B, T)"
)


def gated_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor | None = None,
    h0: Tensor | None = None,
    *,
    bonus: Tensor | None = None,
    resets: Tensor | None = None,
    chunk: int = 32,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Scan a sequence from the state `h0` to its final state. Gradients flow through all inputs and both outputs.

    Args:
        q: queries, (B, T, G, K); C of Mamba-2. Head h reads group h // (H / G). Not scaled here.
        k: keys, (B, T, G, K); B of Mamba-2.
        v: values, (B, T, H, V); dt * x of Mamba-2.
        log_decay: log a_t <= 0. None: no decay (linear attention). (H,): one per head (RetNet). (B, T, H): one per
            head and step (Mamba-2). (B, T, H, K): a vector (GLA, RWKV-6). -inf is a decay of exactly 0.
        h0: initial state, (B, H, K, V); None is zero.
        bonus: (H, K), RWKV-6's u. Step t reads the state before step t, and its own key times the bonus.
        resets: (B, T) bool; True clears the state before step t. Earlier values must be finite, except in `reference`.
        chunk: tokens per chunk, in backends with a free choice. It changes only speed and rounding.
        backend: auto, reference, torch, cpp or triton.

    Returns:
        y (B, T, H, V) in the dtype of v, and the final state (B, H, K, V), at least in float32.

    Raises:
        ValueError: shapes or dtypes do not match, chunk is below 1, or the backend is unknown or cannot run.
    """
    inputs = Inputs(q, k, v, log_decay, h0, bonus, resets)
    check_matrix_scan("gated_scan", SAYS, inputs, (1, 3, 4), chunk)
    return operator(inputs, Options(chunk), backend)


operator = Operator("gated_scan", Inputs, Options, outputs, ("reference", "torch", "cpp", "triton"))
