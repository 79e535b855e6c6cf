"""Recurrences with an initial state in and a final state out. Depends on torch alone.

    diagonal_scan    h_t = a_t * h_{t-1} + b_t                          vector state, real or complex: S4D, S5, RG-LRU
    selective_scan   h_t = exp(delta_t A) h_{t-1} + delta_t B_t u_t     a decay by channel and state: Mamba-1
    gated_scan       S_t = a_t S_{t-1} + k_t v_t^T,   y_t = q_t^T S_t   matrix state: Mamba-2, GLA, RWKV-6, RetNet
    delta_scan       S_t = a_t S_{t-1} + beta_t k_t (v_t - k_t^T a_t S_{t-1})^T   corrected: DeltaNet, GDN, KDA, RWKV-7
    causal_conv1d    y_t = act(bias + sum_i w_i x_{t-K+1+i})            short depthwise convolution, with its state
    gated_rms_norm   y_t = weight * rms_normalized(x_t * silu(gate_t))  no state: part of a Mamba-2 block

Each operation runs in several backends. "auto" takes the fastest one that can run. `reference` computes one step at a
time in the precision of its inputs. It is the oracle of the tests.
"""

from importlib.util import find_spec
from typing import NoReturn

if find_spec("torch") is not None:
    from ssm_kernels.backends import BACKENDS, BackendError, chosen, use_backend
    from ssm_kernels.causal_conv1d import causal_conv1d
    from ssm_kernels.delta_scan import delta_scan
    from ssm_kernels.diagonal_scan import diagonal_scan
    from ssm_kernels.gated_rms_norm import gated_rms_norm
    from ssm_kernels.gated_scan import gated_scan
    from ssm_kernels.operators import observe
    from ssm_kernels.selective_scan import selective_scan

__all__ = [
    "BACKENDS",
    "BackendError",
    "causal_conv1d",
    "chosen",
    "delta_scan",
    "diagonal_scan",
    "gated_rms_norm",
    "gated_scan",
    "observe",
    "selective_scan",
    "use_backend",
]


def __getattr__(name: str) -> NoReturn:
    """Without torch, this package has none of its names. `benchmarks.on_gpu` then says what to install."""
    if name in __all__:
        raise ModuleNotFoundError(f"ssm_kernels.{name} needs torch, which is not installed", name="torch")
    raise AttributeError(f"module 'ssm_kernels' has no attribute '{name}'")
