"""The diagonal scan: against a digital filter, and the shapes that the others do not have."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kernels.cases import PAIRS
from kernels.numerics import normal, with_gradients, worst
from scipy.signal import lfilter
from ssm_kernels import diagonal_scan
from torch import Tensor

from ssm.models.mixers.s5 import S5
from ssm.specs.mixers.s5 import S5Mixer

backends = pytest.mark.parametrize(
    "backend", ["reference", *(name for operation, name in PAIRS if operation == "diagonal_scan")]
)


@backends
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_equals_a_recursive_filter(backend: str, kind: str) -> None:
    """A constant a is a first-order filter: scipy has it, with its initial state."""
    angle, b, h0 = normal(1, (3,), (2, 100, 3), (2, 3))
    a = torch.polar(torch.full_like(angle, 0.98), angle) if kind == "complex" else angle.tanh()
    expected = np.empty((2, 100, 3), dtype=a.numpy().dtype)
    for i in range(2):
        for d in range(3):
            value = a[d].item()
            expected[i, :, d] = lfilter([1.0], [1.0, -value], b[i, :, d].numpy(), zi=[value * h0[i, d].item()])[0]
    h, state = diagonal_scan(a, b, h0.to(a.dtype), backend=backend)
    assert worst([h, state], [torch.from_numpy(expected), torch.from_numpy(expected[:, -1])]) < 1e-13


@pytest.mark.parametrize("backend", ["torch", "cpp"])
def test_the_states_of_s5_stay_exact_over_a_hundred_thousand_steps(backend: str) -> None:
    """S5's own decays as it is initialized, in float32, with a state handed on half way: against a loop in float64."""
    steps = 100_000
    torch.manual_seed(1)
    mixer = S5(S5Mixer(d_state=16, dt_range=(1e-4, 1e-1)), d_model=2, n_layers=1)
    with torch.no_grad():
        a, into, _ = mixer.system()  # (P / 2,), (P / 2, D)
        x = torch.randn(1, steps, 2)
        inputs = x.to(into.dtype) @ into.mT  # (1, T, P / 2)
        first, handed = diagonal_scan(a, inputs[:, : steps // 2], backend=backend)
        second, last = diagonal_scan(a, inputs[:, steps // 2 :], handed, backend=backend)
    loop = inputs[0].numpy().astype(np.complex128)
    decays = a.numpy().astype(np.complex128)
    for t in range(1, steps):
        loop[t] += decays * loop[t - 1]
    assert 1 / (1 - abs(decays).max()) > 10_000  # steps that the slowest state remembers
    got = [torch.cat([first, second], 1)[0], last[0]]
    assert worst(got, [torch.from_numpy(loop), torch.from_numpy(loop[-1])]) < 1e-5


@backends
@pytest.mark.parametrize(("length", "width"), [(16, 1), (97, 1), (300, 3), (1000, 2)])
def test_long_and_narrow_is_as_exact(backend: str, length: int, width: int) -> None:
    """Where time may be cut into segments that run side by side."""
    generator = torch.Generator().manual_seed(1)
    a = torch.rand(1, length, width, generator=generator, dtype=torch.float64)
    resets = torch.rand(1, length, generator=generator) < 0.05
    inputs = [a, *normal(2, (1, length, width), (1, width))]

    def run(*x: Tensor, name: str) -> tuple[Tensor, Tensor]:
        return diagonal_scan(*x, resets=resets, backend=name)

    expected = with_gradients(lambda *x: run(*x, name="reference"), inputs, 0)
    assert worst(with_gradients(lambda *x: run(*x, name=backend), inputs, 0), expected) < 1e-13
