"""The selective scan of Mamba-1 (Gu & Dao 2023, Section 3.3), with input-dependent decays per channel and state.

delta_t = softplus(dt_t + dt_bias)
h_t     = exp(delta_t A) * h_{t-1} + delta_t B_t u_t        h: (D, N)
y_t     = (C_t . h_t + D u_t) * silu(z_t)
"""

from __future__ import annotations

from torch import Tensor

from ssm_kernels.checks import check_numbers, check_shapes, refuse
from ssm_kernels.operators import Operator, Outputs
from ssm_kernels.selective_scan.inputs import Inputs, Options

SAYS = "u, dt, z are (B, T, D), A (D, N) with N > 0, B and C (B, T, N), D and dt_bias (D,), h0 (B, D, N), resets (B, T)"


def selective_scan(
    u: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    z: Tensor | None = None,
    h0: Tensor | None = None,
    *,
    dt_softplus: bool = True,
    resets: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Scan a sequence from the state `h0` to its final state. Gradients flow through all inputs and both outputs.

    Args:
        u: inputs, (B, T, D).
        dt: step sizes before bias and softplus, (B, T, D).
        A: (D, N), real and at most 0. 0 gives a decay of exactly 1, and -inf a decay of exactly 0, for any dt.
        B: input projections, (B, T, N).
        C: readouts, (B, T, N).
        D: skip connection, (D,) or None.
        dt_bias: (D,) or None.
        z: gate, (B, T, D) or None; y is multiplied by silu(z).
        h0: initial state, (B, D, N); None is zero.
        dt_softplus: True: delta = softplus(dt + dt_bias). False: delta = dt + dt_bias, which must be at least 0.
        resets: (B, T) bool; True clears the state before step t.
        backend: auto, reference, torch, cpp, triton or cuda.

    Returns:
        y (B, T, D) in the dtype of u, and the final state (B, D, N), at least in float32.

    Raises:
        ValueError: shapes or dtypes do not match, or the backend is unknown or cannot run.
    """
    inputs = Inputs(u, dt, A, B, C, D, dt_bias, z, h0, resets)
    tensors = inputs._asdict()
    check_numbers("selective_scan", tensors, 5)
    if u.dim() != 3 or A.dim() != 2 or A.shape[1] < 1:
        refuse("selective_scan", SAYS, tensors)
    (batch, length, channels), N = u.shape, A.shape[1]
    sequence, projection = (batch, length, channels), (batch, length, N)
    expected = {"dt": sequence, "z": sequence, "A": (channels, N), "B": projection, "C": projection}
    expected |= {"D": (channels,), "dt_bias": (channels,), "h0": (batch, channels, N), "resets": (batch, length)}
    check_shapes("selective_scan", SAYS, tensors, expected)
    return operator(inputs, Options(dt_softplus), backend)


def _outputs(inputs: Inputs) -> Outputs:
    batch, length, channels = inputs.u.shape
    return Outputs((batch, length, channels), (batch, channels, inputs.A.shape[1]), inputs.u.dtype)


operator = Operator("selective_scan", Inputs, Options, _outputs, ("reference", "torch", "cpp", "triton", "cuda"))
