"""S4D, DSS, S5 and H3: outputs against convolutions and dense matrices, segments, and initialization."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models.mixers.systems import parsed
from ssm_kernels.testing.numerics import normal, worst
from torch import Tensor

from ssm.models.mixers import build_mixer
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.linear_ssm import exp_and_expm1, hippo_normal

D, T, B = 6, 23, 2


pytestmark = pytest.mark.usefixtures("plain_backend")


def mixer(**fields: Any) -> Mixer:
    torch.manual_seed(0)
    return build_mixer(parsed(fields), D, 3).double()


def complex_normal(seed: int, *shape: int) -> Tensor:
    return torch.view_as_complex(normal(seed, (*shape, 2))[0])


def convolved(kernel: Tensor, x: Tensor) -> Tensor:
    """Causal convolution over time by FFT: kernel (T, D), x (B, T, D)."""
    length = 2 * x.shape[1]
    product = torch.fft.rfft(kernel, length, dim=0) * torch.fft.rfft(x, length, dim=1)
    return torch.fft.irfft(product, length, dim=1)[:, : x.shape[1]]


def bars(A: Tensor, dt: Tensor, rule: str) -> tuple[Tensor, Tensor]:
    """Discretize diagonal systems h' = A h + x with matrices: exp of [[A dt, dt], [0, 0]], or a linear solve."""
    A, dt = torch.broadcast_tensors(A, dt)
    zero, one = torch.zeros_like(A), torch.ones_like(A)
    if rule == "zoh":
        system = torch.stack([torch.stack([A * dt, one * dt], -1), torch.stack([zero, zero], -1)], -2)  # (..., 2, 2)
        return torch.matrix_exp(system)[..., 0, :].unbind(-1)
    implicit, explicit = one - A * dt / 2, torch.stack([one + A * dt / 2, one * dt], -1)
    return torch.linalg.solve(implicit[..., None, None], explicit[..., None, :])[..., 0, :].unbind(-1)


def kernels(a: Tensor, b: Tensor, c: Tensor, times: int) -> Tensor:
    """Re sum_n c_n a_n^t b_n, (T, D)."""
    powers = a ** torch.arange(times)[:, None, None]  # (T, D, N)
    return (c * powers * b).sum(-1).real


def gradients(output: Tensor, mixer: Mixer) -> list[Tensor]:
    return list(torch.autograd.grad((output * normal(9, tuple(output.shape))[0]).sum(), list(mixer.parameters())))


@pytest.mark.parametrize("init", ["lin", "inv"])
@pytest.mark.parametrize("rule", ["zoh", "bilinear"])
def test_s4d_is_a_convolution(init: str, rule: str) -> None:
    layer = mixer(kind="s4d", d_state=8, init=init, discretization=rule, segment=7)
    x, start = normal(1, (B, T, D))[0], complex_normal(2, B, D, 4)
    y, ended = layer(x, {"memory": torch.view_as_real(start)})

    A = -layer.A_real_log.exp() + 1j * layer.A_imag
    a, b = bars(A, layer.log_dt.exp()[:, None].to(A.dtype), rule)
    b, c = b * torch.view_as_complex(layer.B), 2 * torch.view_as_complex(layer.C)
    from_start = (c * a ** torch.arange(1, T + 1)[:, None, None] * start[:, None]).sum(-1).real  # (B, T, D)
    inner = convolved(kernels(a, b, c, T), x) + from_start + layer.D * x
    doubled = F.linear(F.gelu(inner), layer.out_proj.weight, layer.out_proj.bias)
    expected = doubled[..., :D] * torch.sigmoid(doubled[..., D:])
    assert worst([y, *gradients(y, layer)], [expected, *gradients(expected, layer)]) < 1e-10

    back = a ** torch.arange(T - 1, -1, -1)[:, None, None]  # share of each input in the final state
    last = (back * b * x.unsqueeze(-1)).sum(1) + a**T * start
    assert worst([ended["memory"]], [torch.view_as_real(last)]) < 1e-10


def test_dss_is_a_convolution() -> None:
    layer = mixer(kind="dss", d_state=5, segment=6)
    x = normal(1, (B, T, D))[0]
    y, _ = layer(x)
    A = -layer.A_real_log.exp() + 1j * layer.A_imag  # (N,)
    a, b = bars(A, layer.log_dt.exp()[:, None].to(A.dtype), "zoh")
    inner = convolved(kernels(a, b, torch.view_as_complex(layer.W), T), x) + layer.D * x
    expected = layer.out_proj(F.gelu(inner))
    assert worst([y, *gradients(y, layer)], [expected, *gradients(expected, layer)]) < 1e-10


@pytest.mark.parametrize("rule", ["zoh", "bilinear"])
def test_s5_is_a_dense_real_system(rule: str) -> None:
    """With explicit conjugate states, as matrices. The outputs are real without taking a real part."""
    layer = mixer(kind="s5", d_state=8, blocks=2, discretization=rule)
    x, start = normal(1, (B, T, D))[0], complex_normal(2, B, 4)
    y, ended = layer(x, {"memory": torch.view_as_real(start).unsqueeze(1)})

    A, dt = torch.complex(layer.A_real, layer.A_imag), layer.log_dt.exp()
    A, dt = torch.cat([A, A.conj()]), torch.cat([dt, dt]).to(A.dtype)
    Bs = torch.view_as_complex(layer.B)
    Cs = torch.view_as_complex(layer.C)
    a, b = bars(A, dt, rule)
    transition, entry = torch.diag(a), b[:, None] * torch.cat([Bs, Bs.conj()])  # (P, P), (P, D)
    readout = torch.cat([Cs, Cs.conj()], 1)  # (D, P)
    h = torch.cat([start, start.conj()], 1)  # (B, P)
    outputs = []
    for t in range(T):
        h = h @ transition.T + x[:, t].to(h.dtype) @ entry.T
        outputs.append(h @ readout.T)
    inner = torch.stack(outputs, 1)
    assert inner.imag.abs().max() < 1e-12
    active = F.gelu(inner.real + layer.D * x)
    expected = active * torch.sigmoid(F.linear(active, layer.gate.weight, layer.gate.bias))
    assert worst([y, *gradients(y, layer)], [expected, *gradients(expected, layer)]) < 1e-10
    assert worst([ended["memory"][:, 0]], [torch.view_as_real(h[:, :4])]) < 1e-10


@pytest.mark.parametrize("head_dim", [1, 3])
def test_h3_is_algorithm_1_by_matrices(head_dim: int) -> None:
    """The shift SSM as a shift matrix, the diagonal SSM as a convolution of the products of keys and values."""
    layer = mixer(kind="h3", d_state=4, d_shift=5, head_dim=head_dim, segment=8)
    H, P, x = D // head_dim, head_dim, normal(1, (B, T, D))[0]
    y, _ = layer(x)
    q, k, v = layer.q_proj(x), layer.k_proj(x), layer.v_proj(x)

    shift, first = torch.diag(torch.ones(4, dtype=torch.float64), -1), F.one_hot(torch.tensor(0), 5).double()
    s, shifted = torch.zeros(B, D, 5, dtype=torch.float64), []
    for t in range(T):
        s = s @ shift.T + k[:, t, :, None] * first
        shifted.append((s.flip(-1) * layer.shift_C).sum(-1) + layer.shift_D * k[:, t])  # C's last column: lag 0
    q, k, v = (part.view(B, T, H, P) for part in (q, torch.stack(shifted, 1), v))
    products = torch.einsum("bthi,bthj->bthij", k, v)

    A = -layer.A_real_log.exp() + 1j * layer.A_imag
    a, b = bars(A, layer.log_dt.exp()[:, None].to(A.dtype), "zoh")
    kernel = kernels(a, b * torch.view_as_complex(layer.B), 2 * torch.view_as_complex(layer.C), T)  # (T, H)
    inner = convolved(kernel[..., None, None], products) + layer.D[:, None, None] * products
    expected = layer.out_proj(torch.einsum("bthi,bthij->bthj", q, inner).flatten(-2))
    assert worst([y, *gradients(y, layer)], [expected, *gradients(expected, layer)]) < 1e-10


# --- Segments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_resets", [False, True])
@pytest.mark.parametrize("kind", ["s4d", "dss", "h3"])
def test_segments_change_only_speed_and_memory(kind: str, with_resets: bool) -> None:
    """Equal results for all segment sizes. Tensors saved for gradients do not contain the states of all steps."""
    length, small = 259, {"d_shift": 1} if kind == "h3" else {}
    x = normal(1, (B, length, D))[0]
    resets = torch.rand(B, length, generator=torch.Generator().manual_seed(2)) < 0.1 if with_resets else None
    results, kept = [], []
    for segment in (1, 16, 300):
        layer = mixer(kind=kind, d_state=256, segment=segment, **small)
        sizes = []

        def pack(tensor: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y, ended = layer(x, None, resets)
        results.append([y, ended["memory"], *gradients(y, layer)])
        kept.append(sum(sizes))
    assert worst(results[1], results[0]) < 1e-11
    assert worst(results[2], results[0]) < 1e-11
    states = B * length * math.prod(layer.spec.state_shape(D)) // 2  # complex numbers
    assert kept[0] > 3 * states
    assert kept[1] < 1.2 * states


@pytest.mark.parametrize("rule", ["zoh", "bilinear"])
def test_rounding_in_a_segment(rule: str) -> None:
    """Frequencies of many rotations for each step, in float32: the parallel form equals the step form."""
    layer = mixer(kind="s4d", d_state=64, segment=64, discretization=rule, dt_range=[0.1, 0.1]).float()
    x = normal(3, (1, 64, D))[0].float()
    with torch.no_grad():
        y, ended = layer(x)
        state = None
        for t in range(64):
            y_t, state = layer.step(x[:, t], state)
            assert worst([y_t], [y[:, t]]) < 1e-5
    assert state is not None
    assert worst([state["memory"]], [ended["memory"]]) < 1e-5


# --- Initialization ---------------------------------------------------------------------------------------------------


def test_the_normal_part_of_hippo() -> None:
    """It is LegS plus its rank-one term: half of its eigenvalues, orthonormal eigenvectors, real parts -1/2."""
    N = 8
    n = torch.arange(N, dtype=torch.float64)
    legs = -torch.tril(torch.sqrt((2 * n[:, None] + 1) * (2 * n + 1)), -1) - torch.diag(n + 1)
    normal_part = legs + torch.sqrt(n[:, None] + 0.5) * torch.sqrt(n + 0.5)
    expected = torch.linalg.eigvals(normal_part)
    expected = expected[expected.imag > 0]
    expected = expected[expected.imag.argsort(descending=True)]
    eigenvalues, vectors = (x.to(torch.complex128) for x in hippo_normal(N))
    assert worst([eigenvalues], [expected]) < 1e-6
    assert eigenvalues.real.unique().tolist() == [-0.5]
    applied = normal_part.to(vectors.dtype) @ vectors
    assert worst([applied], [vectors * eigenvalues]) < 1e-6
    assert worst([vectors.mH @ vectors], [torch.eye(4)]) < 1e-6


def test_initial_eigenvalues_of_s4d() -> None:
    lin, inv = (mixer(kind="s4d", d_state=8, init=init) for init in ("lin", "inv"))
    assert torch.allclose(lin.A_imag, math.pi * torch.arange(4.0).double().expand(D, 4), rtol=1e-6)
    # Section 3.2 for N = 8: (8 / pi) (8 / (2 n + 1) - 1)
    expected = [8 / math.pi * 7, 8 / math.pi * (8 / 3 - 1), 8 / math.pi * (8 / 5 - 1), 8 / math.pi * (8 / 7 - 1)]
    assert inv.A_imag[3].tolist() == pytest.approx(expected, rel=1e-6)
    assert (-lin.A_real_log.exp()).unique().tolist() == pytest.approx([-0.5])
    assert lin.B[..., 0].unique().tolist() == [1]
    assert lin.B[..., 1].unique().tolist() == [0]


@pytest.mark.parametrize("kind", ["s4d", "dss", "s5", "h3"])
def test_steps_are_log_uniform(kind: str) -> None:
    width, sizes = (8, {"d_state": 2000, "blocks": 100}) if kind == "s5" else (1000, {"d_state": 2})
    torch.manual_seed(0)
    dt = build_mixer(parsed({"kind": kind, "dt_range": [1e-2, 1.0]} | sizes), width, 1).log_dt.detach().exp()
    assert dt.shape == (1000,)
    assert 0.01 <= dt.min() < 0.0105
    assert 0.95 < dt.max() <= 1
    assert float(dt.log10().mean()) == pytest.approx(-1, abs=0.06)


def test_initial_weights_of_s5_are_real_in_the_basis_of_hippo() -> None:
    """B~ in the basis of HiPPO has variance 1 / P, and all blocks have the same eigenvalues."""
    torch.manual_seed(0)
    layer = build_mixer(parsed({"kind": "s5", "d_state": 64, "blocks": 4}), 200, 1).requires_grad_(False)
    V = torch.block_diag(*[hippo_normal(16)[1]] * 4)
    assert torch.equal(layer.A_imag.view(4, 8), layer.A_imag[:8].expand(4, 8))
    recovered = 2 * (V @ torch.view_as_complex(layer.B)).real  # (P, D)
    assert float(recovered.std()) == pytest.approx(64**-0.5, rel=0.03)
    assert worst([torch.view_as_real(V.mH @ recovered.to(V.dtype))], [layer.B]) < 1e-5
    assert float(torch.view_as_complex(layer.C).abs().square().mean()) == pytest.approx(2 / 64, rel=0.05)


def test_no_state_of_s5_can_grow() -> None:
    layer = mixer(kind="s5", d_state=4, blocks=1)
    with torch.no_grad():
        layer.A_real.fill_(0.3)
    assert layer.system()[0].abs().max() < 1


def test_initial_weights_of_dss_and_h3() -> None:
    dss = mixer(kind="dss", d_state=5)
    assert torch.allclose(dss.A_imag, hippo_normal(10)[0].imag.double())
    torch.manual_seed(0)
    h3 = build_mixer(parsed({"kind": "h3", "d_shift": 16}), 300, 1)
    assert 0.24 < h3.shift_C.max() <= 0.25  # uniform up to 1 / sqrt(16), as a convolution of that width
    assert -0.25 <= h3.shift_C.min() < -0.24


@pytest.mark.parametrize("kind", ["s4d", "dss", "h3"])
def test_a_decay_of_zero_is_finite(kind: str) -> None:
    """With a step so large that every decay underflows, outputs and gradients are finite."""
    layer = mixer(kind=kind, segment=4).float()
    with torch.no_grad():
        layer.log_dt.fill_(7.0)
    x = normal(4, (1, 9, D))[0].float()
    y, _ = layer(x)
    y.square().sum().backward()
    assert y.isfinite().all()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in layer.parameters())
    assert layer.system()[0].abs().max() == 0


@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0, 30.0])
def test_exp_and_expm1_have_full_precision(size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = size * -torch.rand(4096, generator=generator), size * (2 * torch.rand(4096, generator=generator) - 1)
    exact = torch.complex(x.double(), y.double())
    found = exp_and_expm1(x, y)
    for value, expected in zip(found, (torch.exp(exact), torch.expm1(exact)), strict=True):
        assert ((value - expected).abs() / expected.abs()).max() < 4e-7
    parts = [part[:8].double().requires_grad_() for part in (x, y)]
    assert torch.autograd.gradcheck(exp_and_expm1, parts)
    assert torch.autograd.gradgradcheck(exp_and_expm1, parts)
