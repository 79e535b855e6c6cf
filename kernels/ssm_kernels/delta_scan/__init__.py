"""The delta scan: a matrix state that is decayed and corrected at every step (DeltaNet, Gated DeltaNet, KDA, RWKV-7).

With a_t = exp(log_decay_t), S: (K, V) per head, and y_t = q_t^T S_t:

    delta rule     S_t = diag(a_t) S_{t-1} + beta_t k_t (v_t - k_t^T diag(a_t) S_{t-1})^T
    generalized    S_t = diag(a_t) S_{t-1} + b_t (a^_t^T S_{t-1}) + k_t v_t^T           a^: the argument `a`

The delta rule reads the value of the decayed state at k_t and moves it towards v_t. With beta_t |k_t|^2 = 1
the new value is v_t. With 2 it is on the other side of v_t, at the same distance. The systems are:

    no decay              DeltaNet (Schlag et al. 2021, "Linear transformers are secretly fast weight programmers";
                          Yang et al. 2024, "Parallelizing linear transformers with the delta rule")
    a decay per head      Gated DeltaNet (Yang et al. 2024, "Gated Delta Networks")
    a decay per key       Kimi Delta Attention (Kimi Team 2025, "Kimi Linear")
    generalized form      RWKV-7 (Peng et al. 2025, "RWKV-7 Goose"), with a^ = -kappa_hat and b = kappa_hat * iclr.
                          a^ reads the state before its decay.
"""

from __future__ import annotations

from torch import Tensor

from ssm_kernels.checks import refuse
from ssm_kernels.delta_scan.inputs import Inputs, Options
from ssm_kernels.matrix_scan import check_matrix_scan, outputs
from ssm_kernels.operators import Operator

SAYS = (
    "q and k are (B, T, G, K), v (B, T, H, V) where G > 0 divides H, and K > 0, beta (B, T, H) or else a and b "
    "(B, T, H, K), log_decay (B, T, H) or (B, T, H, K), h0 (B, H, K, V), resets (B, T)"
)


def delta_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None = None,
    log_decay: Tensor | None = None,
    h0: Tensor | None = None,
    *,
    a: Tensor | None = None,
    b: Tensor | None = None,
    resets: Tensor | None = None,
    chunk: int = 32,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Scan a sequence from the state `h0` to its final state. Gradients flow through all inputs and both outputs.

    Args:
        q: queries, (B, T, G, K). Head h reads group h // (H / G). Not scaled here.
        k: keys, (B, T, G, K). Not normalized here; states stay bounded where 0 <= beta |k|^2 <= 2.
        v: values, (B, T, H, V).
        beta: the delta rule's strength, (B, T, H). None: the generalized form, which needs `a` and `b`.
        log_decay: log a_t <= 0. None: no decay (DeltaNet). (B, T, H): one per head (Gated DeltaNet). (B, T, H, K): a
            vector (Kimi Delta Attention, RWKV-7). -inf is a decay of exactly 0.
        h0: initial state, (B, H, K, V); None is zero.
        a: a^ of the generalized form, (B, T, H, K). It reads the state before the decay of the step.
        b: b of the generalized form, (B, T, H, K). The value that a^ reads is written there.
        resets: (B, T) bool; True clears the state before step t. Earlier values must be finite in `torch` and `triton`.
        chunk: tokens per chunk, in backends with a free choice. It changes only speed and rounding.
        backend: auto, reference, torch, cpp or triton.

    Returns:
        y (B, T, H, V) in the dtype of v, and the final state (B, H, K, V), at least in float32.

    Raises:
        ValueError: shapes or dtypes that do not fit, neither form or both, a chunk below 1, or a backend that is
            unknown or cannot run.
    """
    inputs = Inputs(q, k, v, beta, log_decay, h0, a, b, resets)
    check_matrix_scan("delta_scan", SAYS, inputs, (3, 4), chunk)
    if (a is None) != (b is None) or (beta is None) != (a is not None):
        says = "takes either beta (the delta rule) or both a and b (the generalized form)"
        refuse("delta_scan", says, inputs._asdict())
    return operator(inputs, Options(chunk), backend)


operator = Operator("delta_scan", Inputs, Options, outputs, ("reference", "torch", "cpp", "triton"))
