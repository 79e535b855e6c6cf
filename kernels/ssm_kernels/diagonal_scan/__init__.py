"""The diagonal scan: an elementwise linear recurrence, real or complex (S4D, DSS, S5, H3, RG-LRU, RWKV-4).

h_t = a_t * h_{t-1} + b_t
"""

from __future__ import annotations

from torch import Tensor

from ssm_kernels.checks import COMPLEX, check_numbers, check_shapes, refuse
from ssm_kernels.diagonal_scan.inputs import Inputs, Options
from ssm_kernels.dtypes import compute_dtype
from ssm_kernels.operators import Operator, Outputs

SAYS = "b is (B, T, D), a (B, T, D) or (D,), h0 (B, D), resets (B, T)"


def diagonal_scan(
    a: Tensor, b: Tensor, h0: Tensor | None = None, *, resets: Tensor | None = None, backend: str = "auto"
) -> tuple[Tensor, Tensor]:
    """All states of h_t = a_t * h_{t-1} + b_t. Gradients flow through all inputs and both outputs.

    Args:
        a: decays with |a| <= 1, real or complex; (B, T, D), or (D,) if they are the same at every step.
        b: inputs, (B, T, D), real or complex.
        h0: initial state, (B, D); None is zero.
        resets: (B, T) bool; True clears the state before step t.
        backend: auto, reference, torch, cpp or triton.

    Returns:
        h (B, T, D) and the final state (B, D), at least in float32, complex if a or b is complex.

    Raises:
        ValueError: shapes or dtypes do not match, or the backend is unknown or cannot run.
    """
    tensors = {"a": a, "b": b, "h0": h0, "resets": resets}
    check_numbers("diagonal_scan", tensors, 2, COMPLEX)
    if b.dim() != 3 or a.dim() not in (1, 3):
        refuse("diagonal_scan", SAYS, tensors)
    B, T, D = b.shape
    shape_a = (D,) if a.dim() == 1 else (B, T, D)
    check_shapes("diagonal_scan", SAYS, tensors, {"a": shape_a, "h0": (B, D), "resets": (B, T)})
    return operator(Inputs(a, b, h0, resets), Options(), backend)


def _outputs(inputs: Inputs) -> Outputs:
    B, T, D = inputs.b.shape
    return Outputs((B, T, D), (B, D), compute_dtype(*inputs))


operator = Operator(
    "diagonal_scan", Inputs, Options, _outputs, ("reference", "torch", "cpp", "triton"), keep_output=True
)
