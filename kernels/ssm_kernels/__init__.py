"""Recurrences with an initial state in and a final state out. Depends on torch alone.

    gated_scan       S_t = a_t S_{t-1} + k_t v_t^T,   y_t = q_t^T S_t      (matrix state: Mamba-2 and linear attention)
    causal_conv1d    y_t = act(bias + sum_i w_i x_{t-K+1+i})               (short depthwise convolution, with its state)

Every operation comes with a `reference`: one step at a time, in the precision of its inputs, which is the oracle.
"""

from ssm_kernels.causal_conv1d import causal_conv1d
from ssm_kernels.gated_scan import gated_scan

__all__ = ["causal_conv1d", "gated_scan"]
