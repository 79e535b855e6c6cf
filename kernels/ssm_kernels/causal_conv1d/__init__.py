"""A short causal depthwise convolution that carries its last inputs (Mamba, Mamba-2, H3, Griffin).

y_t = act(bias + sum_{i=0}^{K-1} w_i * x_{t-K+1+i})        per channel
"""

from __future__ import annotations

from torch import Tensor

from ssm_kernels.causal_conv1d.inputs import Inputs, Options
from ssm_kernels.checks import check_numbers, check_shapes, refuse
from ssm_kernels.operators import Operator, Outputs

SAYS = "x is (B, T, D), weight (D, K), bias (D,), state (B, K - 1, D), resets (B, T)"


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    state: Tensor | None = None,
    *,
    resets: Tensor | None = None,
    activation: str | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Convolve a sequence. `state` holds the last inputs before it; the result has those for the next sequence.

    Args:
        x: inputs, (B, T, D).
        weight: (D, K); its last column multiplies the current input.
        bias: (D,) or None.
        state: the K - 1 inputs before x, oldest first, (B, K - 1, D); None is zero.
        resets: (B, T) bool; True forgets all inputs before step t.
        activation: None or "silu".
        backend: auto, reference, torch, cpp or cuda.

    Returns:
        y (B, T, D) in the dtype of x, and the state after it (B, K - 1, D), at least in float32.

    Raises:
        ValueError: shapes or dtypes do not match, or a name is unknown.
    """
    inputs = Inputs(x, weight, bias, state, resets)
    tensors = inputs._asdict()
    check_numbers("causal_conv1d", tensors, 2)
    if x.dim() != 3 or weight.dim() != 2 or weight.shape[1] < 1:
        refuse("causal_conv1d", SAYS, tensors)
    (B, T, D), K = x.shape, weight.shape[1]
    expected = {"weight": (D, K), "bias": (D,), "state": (B, K - 1, D), "resets": (B, T)}
    check_shapes("causal_conv1d", SAYS, tensors, expected)
    if activation not in (None, "silu"):
        raise ValueError(f"causal_conv1d: unknown activation '{activation}', expected None or silu")
    return operator(inputs, Options(activation or ""), backend)


def _outputs(inputs: Inputs) -> Outputs:
    (B, T, D), K = inputs.x.shape, inputs.weight.shape[1]
    return Outputs((B, T, D), (B, K - 1, D), inputs.x.dtype)


operator = Operator("causal_conv1d", Inputs, Options, _outputs, ("reference", "torch", "cpp", "cuda"), start="state")
