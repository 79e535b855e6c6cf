"""mamba_ssm's own models on the CPU. Its own reference functions replace its kernels.

The package must be installed (a wheel without CUDA: MAMBA_FORCE_BUILD=TRUE MAMBA_SKIP_CUDA_BUILD=TRUE). An empty module
replaces its compiled module `selective_scan_cuda`. All computations are code of mamba_ssm: MambaLMHeadModel, blocks,
mixers, and `rms_norm_ref`, `selective_scan_ref` and `ssd_selective_scan` in PyTorch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from models.formats import round_trip
from torch import Tensor, nn

CUDA = "selective_scan_cuda"
sys.modules.setdefault(CUDA, ModuleType(CUDA))

import mamba_ssm.models.mixer_seq_simple as sequence  # noqa: E402
import mamba_ssm.modules.block as block  # noqa: E402
import mamba_ssm.modules.mamba2 as mamba2  # noqa: E402
import mamba_ssm.modules.mamba_simple as mamba1  # noqa: E402
import mamba_ssm.ops.selective_scan_interface as scans  # noqa: E402
import mamba_ssm.ops.triton.layer_norm as norms  # noqa: E402
import mamba_ssm.ops.triton.layernorm_gated as gated  # noqa: E402
import mamba_ssm.ops.triton.ssd_combined as ssd  # noqa: E402
from mamba_ssm.models.config_mamba import MambaConfig  # noqa: E402


def norm(
    x: Tensor, weight: Tensor, bias: None, residual: Tensor | None = None, *, eps: float, prenorm: bool = False,
    is_rms_norm: bool = True, residual_in_fp32: bool = False, **_: Any,
) -> Any:  # fmt: skip
    """`rms_norm_ref` with the signature of the fused norm; everything is float32."""
    assert is_rms_norm
    return norms.rms_norm_ref(x, weight, bias, residual, eps=eps, prenorm=prenorm)


def chunks(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, chunk_size: int, D: Tensor, z: Tensor | None,
    dt_bias: Tensor, dt_softplus: bool, dt_limit: Any = (0.0, float("inf")), **_: Any,
) -> Tensor:  # fmt: skip
    """`ssd_selective_scan` with the signature of the chunked scan."""
    return ssd.ssd_selective_scan(x, dt, A, B, C, D, z, dt_bias, dt_softplus, tuple(dt_limit))


PLAIN: round_trip.Replacements = (
    (block, "layer_norm_fn", norm),
    (sequence, "layer_norm_fn", norm),
    (norms, "rms_norm_fn", norm),
    (gated, "rmsnorm_fn", gated.rms_norm_ref),
    (scans, "selective_scan_fn", scans.selective_scan_ref),
    (mamba1, "selective_scan_fn", scans.selective_scan_ref),
    (mamba2, "mamba_chunk_scan_combined", chunks),
)


@contextmanager
def plain(peer: nn.Module) -> Iterator[None]:
    """mamba_ssm without its kernels. Mamba-2 uses its code path with a convolution in PyTorch."""
    for module in peer.modules():
        if isinstance(module, mamba2.Mamba2):
            module.use_mem_eff_path = False
    with round_trip.replaced(PLAIN):
        yield


def made(**config: Any) -> nn.Module:
    """A model with the library's initialization."""
    torch.manual_seed(0)
    return sequence.MambaLMHeadModel(MambaConfig(**config))


def load(folder: Path) -> nn.Module:
    """Load a folder with mamba_ssm's `from_pretrained`, which accepts only its own names."""
    return sequence.MambaLMHeadModel.from_pretrained(str(folder), device="cpu").eval()


def run(peer: nn.Module, tokens: Tensor) -> Tensor:
    """Logits (B, T, V)."""
    with torch.no_grad(), plain(peer):
        return peer(tokens).logits
