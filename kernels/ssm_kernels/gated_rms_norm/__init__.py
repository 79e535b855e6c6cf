"""RMSNorm after a gate, per group of channels (Mamba-2's norm). Without a gate: RMSNorm (Zhang & Sennrich 2019).

g = x * silu(gate)
y = weight * g / sqrt(mean(g^2) + eps)        the mean over each group's channels
"""

from __future__ import annotations

from torch import Tensor

from ssm_kernels.checks import check_numbers, check_shapes, refuse
from ssm_kernels.gated_rms_norm.inputs import Inputs, Options
from ssm_kernels.operators import Operator, Outputs

SAYS = "x and gate are (..., D), weight (D,), and groups divides D"


def gated_rms_norm(
    x: Tensor,
    weight: Tensor,
    gate: Tensor | None = None,
    *,
    groups: int = 1,
    eps: float = 1e-5,
    backend: str = "auto",
) -> Tensor:
    """Gate and normalize in one pass; gradients flow through every input.

    Args:
        x: (..., D).
        weight: (D,).
        gate: (..., D), or None for no gate.
        groups: number of equal parts of the D channels that are normalized separately.
        eps: added to the mean square.
        backend: auto, reference, torch or cpp.

    Returns:
        y (..., D) in the dtype of x. It is computed in float32 or float64.

    Raises:
        ValueError: shapes or dtypes do not match, or the backend is unknown or cannot run.
    """
    tensors = {"x": x, "weight": weight, "gate": gate}
    check_numbers("gated_rms_norm", tensors, 2)
    if x.dim() < 1 or groups < 1 or x.shape[-1] % groups:
        refuse("gated_rms_norm", f"{SAYS} (groups {groups})", tensors)
    check_shapes("gated_rms_norm", SAYS, tensors, {"weight": (x.shape[-1],), "gate": tuple(x.shape)})
    return operator(Inputs(x, weight, gate), Options(groups, float(eps)), backend)[0]


def _outputs(inputs: Inputs) -> Outputs:
    return Outputs(tuple(inputs.x.shape), (0,), inputs.x.dtype)  # there is no state


operator = Operator("gated_rms_norm", Inputs, Options, _outputs, ("reference", "torch", "cpp"), start=None)
