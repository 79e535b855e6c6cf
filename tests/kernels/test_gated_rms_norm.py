"""The gated RMSNorm: equal to its formula and to independent implementations, in every backend."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.numerics import normal, with_gradients, worst
from ssm_kernels import gated_rms_norm
from torch import Tensor

FAST = ("torch", "cpp")
BACKENDS = ("reference", *FAST)


def inputs(seed: int, rows: tuple[int, ...], channels: int, gated: bool = True) -> list[Tensor]:
    """x, weight and, if it is wanted, gate, in float64."""
    return normal(seed, (*rows, channels), (channels,), (*rows, channels))[: 3 if gated else 2]


@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 2**31),
    rows=st.sampled_from([(), (1,), (5,), (2, 17), (2, 3, 4), (70,), (0,)]),
    width=st.integers(1, 40),
    groups=st.integers(1, 3),
    gated=st.booleans(),
    backend=st.sampled_from(FAST),
)
def test_equals_the_formula(
    seed: int, rows: tuple[int, ...], width: int, groups: int, gated: bool, backend: str
) -> None:
    def run(*tensors: Tensor, backend: str) -> tuple[Tensor]:
        return (gated_rms_norm(*tensors, groups=groups, eps=0.1, backend=backend),)

    tensors = inputs(seed, rows, width * groups, gated)
    expected = with_gradients(lambda *x: run(*x, backend="reference"), tensors, seed)
    assert worst(with_gradients(lambda *x: run(*x, backend=backend), tensors, seed), expected) < 1e-13


@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_rms_norm_of_torch(backend: str) -> None:
    x, weight = inputs(1, (2, 5), 33, gated=False)
    expected = F.rms_norm(x, (33,), weight, eps=1e-3)
    assert worst([gated_rms_norm(x, weight, eps=1e-3, backend=backend)], [expected]) < 1e-14


@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_the_norm_of_transformers(backend: str) -> None:
    """Its Mamba-2 gates first and normalizes all channels, in float32."""
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    config = Mamba2Config(hidden_size=24, expand=2, num_heads=3, head_dim=16, n_groups=1, layer_norm_epsilon=1e-5)
    theirs = Mamba2Mixer(config, 0).norm
    x, weight, gate = (value.float() for value in inputs(2, (3, 7), 48))
    with torch.no_grad():
        theirs.weight.copy_(weight)
    assert worst([gated_rms_norm(x, weight, gate, backend=backend)], [theirs(x, gate)]) < 1e-6


@pytest.mark.parametrize("backend", BACKENDS)
def test_groups_are_normalized_by_themselves(backend: str) -> None:
    x, weight, gate = inputs(3, (4,), 12)
    parts = zip(x.chunk(3, -1), weight.chunk(3), gate.chunk(3, -1), strict=True)
    expected = torch.cat([gated_rms_norm(*part, backend=backend) for part in parts], -1)
    assert worst([gated_rms_norm(x, weight, gate, groups=3, backend=backend)], [expected]) < 1e-14


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("gated", [True, False])
def test_gradients_are_those_of_finite_differences(backend: str, gated: bool) -> None:
    tensors = [x.requires_grad_() for x in inputs(4, (2, 3), 10, gated)]
    assert torch.autograd.gradcheck(lambda *x: gated_rms_norm(*x, groups=2, backend=backend), tensors)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 5e-7), (torch.bfloat16, 5e-3), (torch.float16, 6e-4)])
def test_lower_precision_stays_close(backend: str, dtype: torch.dtype, tolerance: float) -> None:
    low = [x.to(dtype) for x in inputs(5, (2, 200), 64)]
    exact = with_gradients(lambda *x: (gated_rms_norm(*x, backend="reference"),), [x.double() for x in low], 0)
    got = with_gradients(lambda *x: (gated_rms_norm(*x, backend=backend),), low, 0)
    assert {x.dtype for x in got} == {dtype}
    assert worst(got, exact) < tolerance


@pytest.mark.parametrize("backend", FAST)
def test_extreme_gates_are_finite(backend: str) -> None:
    gate = torch.tensor([-1e30, -200.0, -90.0, 0.0, 90.0, 1e4, 1e-40, -1e-40])
    results = with_gradients(
        lambda x, weight, gate: (gated_rms_norm(x, weight, gate, backend=backend),),
        [torch.ones(8), torch.ones(8), gate],
        0,
    )
    assert all(x.isfinite().all() for x in results)


@pytest.mark.parametrize("backend", FAST)
def test_slices_of_wider_rows_will_do(backend: str) -> None:
    """What lies beside a slice must not matter, nor must any layout of memory."""
    x, weight, gate = inputs(6, (3, 5), 21)
    expected = with_gradients(lambda *x: (gated_rms_norm(*x, backend=backend),), [x, weight, gate], 0)

    def sliced(x: Tensor, weight: Tensor, gate: Tensor) -> tuple[Tensor]:
        beside = torch.full((3, 5, 2), torch.nan, dtype=x.dtype)
        x = torch.cat([beside, x, beside], -1)[..., 2:-2]
        gate = gate.transpose(0, 2).contiguous().transpose(0, 2)
        return (gated_rms_norm(x, weight, gate, backend=backend),)

    assert worst(with_gradients(sliced, [x, weight, gate], 0), expected) < 1e-14


@pytest.mark.parametrize(
    ("change", "groups", "named"),
    [
        ({"weight": (5,)}, 1, r"weight \(5,\)"),
        ({"gate": (2, 5)}, 1, r"gate \(2, 5\)"),
        ({}, 4, r"groups divides D \(groups 4\)"),
        ({}, 0, r"groups 0"),
    ],
)
def test_wrong_shapes_are_named(change: dict[str, tuple[int, ...]], groups: int, named: str) -> None:
    shapes = {"x": (2, 6), "weight": (6,), "gate": (2, 6)} | change
    with pytest.raises(ValueError, match=named):
        gated_rms_norm(*(torch.zeros(shape) for shape in shapes.values()), groups=groups)
