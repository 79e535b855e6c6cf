"""Checks of the functions in simd.h over arrays, for any compiler and processor."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FUNCTIONS: dict[str, tuple[float, float, Callable[[Tensor], Tensor]]] = {  # range and definition
    "exp": (-87.0, 88.0, torch.exp),
    "exp2_decay": (-125.0, 0.0, torch.exp2),
    "exp_decay": (-87.0, 0.0, torch.exp),
    "log1p": (0.0, 1.0, torch.log1p),
    "sigmoid": (-80.0, 80.0, torch.sigmoid),
}
WRAPPER = """
template <typename T> void apply_NAME(const T* x, T* y, int64_t n) {
    constexpr int64_t W = simd::Vec<T>::width;
    for (int64_t i = 0; i < n; i += W) {
        const int64_t lanes = n - i < W ? n - i : W;
        simd::NAME(simd::Vec<T>::load_n(x + i, lanes)).store_n(y + i, lanes);
    }
}
extern "C" void NAME_f32(const float* x, float* y, int64_t n) { apply_NAME(x, y, n); }
extern "C" void NAME_f64(const double* x, double* y, int64_t n) { apply_NAME(x, y, n); }
"""
SUMS = """
extern "C" void sums_f32(const float* x, float* y, int64_t n) { simd::sums(x, n, y); }
extern "C" void sums_f64(const double* x, double* y, int64_t n) { simd::sums(x, n, y); }
extern "C" int width_f32() { return simd::Vec<float>::width; }
extern "C" int width_f64() { return simd::Vec<double>::width; }
"""


def write_functions(folder: Path) -> Path:
    """Write a C++ source that exports all functions."""
    file = folder / "functions.cpp"
    file.write_text('#include "simd.h"\n' + "".join(WRAPPER.replace("NAME", name) for name in FUNCTIONS) + SUMS)
    return file


def applied(functions: Any, name: str, x: Tensor, count: int) -> Tensor:
    """The first `count` results of a function of the library. The memory after them must not change."""
    y = torch.full((count + 1,), torch.nan, dtype=x.dtype)
    function = getattr(functions, f"{name}_{'f32' if x.dtype == torch.float32 else 'f64'}")
    function(x, y, count)
    assert y[count].isnan()
    return y[:count]


def check_precision(functions: Any, dtype: torch.dtype) -> None:
    for name, (low, high, definition) in FUNCTIONS.items():
        near_zero = [value for value in (-1e-3, 1e-3, -1e-6, 1e-6) if low <= value <= high]
        x = torch.cat([torch.linspace(low, high, 20011, dtype=torch.float64), torch.tensor(near_zero)]).to(dtype)
        expected = definition(x.double())
        relative = ((applied(functions, name, x, len(x)).double() - expected) / expected.clamp(min=1e-300)).abs()
        assert float(relative[expected > 0].max()) < (2.5e-7 if dtype == torch.float32 else 1e-15), name


def check_extremes(functions: Any, dtype: torch.dtype) -> None:
    inf, nan = math.inf, math.nan
    cases: dict[str, list[tuple[float, float]]] = {
        "exp": [(0, 1), (-inf, 0), (inf, inf), (nan, nan), (1e30, inf), (-1e30, 0)],
        "exp2_decay": [(0, 1), (-0.0, 1), (-1, 0.5), (-inf, 0), (-1e30, 0), (nan, nan)],
        "exp_decay": [(0, 1), (-0.0, 1), (-inf, 0), (-1e30, 0), (nan, nan)],
        "log1p": [(0, 0), (nan, nan)],
        "sigmoid": [(0, 0.5), (-inf, 0), (inf, 1), (nan, nan)],
    }
    for name, pairs in cases.items():
        x, expected = torch.tensor(pairs, dtype=dtype).T.contiguous()
        found = applied(functions, name, x, len(x))
        # Compilers round the largest exponential differently: to infinity, or to a number whose reciprocal is denormal.
        found = found.masked_fill(found.abs() < torch.finfo(dtype).tiny, 0.0)
        assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0)), name


def check_sums(functions: Any, dtype: torch.dtype, count: int) -> None:
    """Check the sums over the lanes of `count` vectors."""
    width = int(functions.width_f32() if dtype == torch.float32 else functions.width_f64())
    x = torch.randint(-1000, 1000, (count, width), generator=torch.Generator().manual_seed(0)).to(dtype)  # exact sums
    assert torch.equal(applied(functions, "sums", x, count), x.sum(1))
