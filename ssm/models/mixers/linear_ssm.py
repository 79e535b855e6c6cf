"""Diagonal state space models: functions and base classes of S4D, DSS, S5 and H3.

h_t = a h_{t-1} + b x_t,   y_t = Re(c^T h_t)        with complex a, b, c (H, N) for H systems of N states

They do not change with time, except a and b of S4D's gated decay.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from ssm_kernels import diagonal_scan
from torch import Tensor, nn

from ssm.models.mixers.base import Mixer
from ssm.models.mixers.coefficients import Coefficients
from ssm.models.mixers.parts import log_uniform, upcast
from ssm.models.state import LayerOutput, LayerState


class ChannelSystems(Mixer):
    """A mixer with one system for each channel (S4D, DSS). State: "memory" (B, D, N, 2) for N complex states."""

    @abstractmethod
    def system(self) -> tuple[Tensor, Tensor, Tensor]:
        """a, b, c (D, N) of h_t = a h_{t-1} + b x_t, y_t = Re(c^T h_t)."""

    def system_of(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`system` for inputs u (..., D): a and b may have the leading axes of u."""
        return self.system()

    @abstractmethod
    def _finish(self, y: Tensor, u: Tensor) -> Tensor:
        """The output of the layer, from outputs y of the systems and inputs u, each (..., D)."""

    def forward(self, u: Tensor, state: LayerState | None = None, resets: Tensor | None = None) -> LayerOutput:
        h0 = None if state is None else torch.view_as_complex(state["memory"]).unsqueeze(2)  # (B, D, 1, N)
        y, h = scan_systems(upcast(u).unsqueeze(-1), *self.system(), h0, resets, self.spec.segment)  # (B, T, D, 1)
        return self._finish(y.squeeze(-1), u), {"memory": torch.view_as_real(h.squeeze(2))}

    def step(self, u: Tensor, state: LayerState | None = None) -> LayerOutput:
        """h_t = a h_{t-1} + b x_t and y_t = Re(c^T h_t) + D x_t."""
        h = None if state is None else torch.view_as_complex(state["memory"]).unsqueeze(2)  # (B, D, 1, N)
        y, h = step_systems(upcast(u).unsqueeze(-1), *self.system_of(u), h)  # (B, D, 1)
        return self._finish(y.squeeze(-1), u), {"memory": torch.view_as_real(h.squeeze(2))}

    def coefficients(self, u: Tensor) -> Coefficients:
        return coefficients_of(self.system_of(u), upcast(u).unsqueeze(-1))


class HeadSystems(Mixer):
    """A mixer with separate weights for the systems of H heads, with N / 2 complex states each (S4D, H3).

    Each state represents a conjugate pair, so outputs are twice the real part.
    """

    def make_system(self, heads: int, imaginary: Tensor) -> None:
        """Initialize the weights, including D of the skip connection.

        Args:
            heads: H.
            imaginary: the imaginary parts of A, (N / 2,), the same in all heads.
        """
        pairs = len(imaginary)  # N / 2
        self.log_dt = nn.Parameter(log_uniform(heads, *self.spec.dt_range).log())
        self.A_real_log = nn.Parameter(torch.full((heads, pairs), 0.5).log())  # A = -exp(A_real_log) + i A_imag
        self.A_imag = nn.Parameter(imaginary.float().repeat(heads, 1))  # (H, N / 2)
        self.B = nn.Parameter(torch.tensor([1.0, 0.0]).repeat(heads, pairs, 1))  # (H, N / 2, 2): real, imaginary
        self.C = nn.Parameter(torch.randn(heads, pairs, 2) / 2**0.5)  # complex standard normal
        self.D = nn.Parameter(torch.randn(heads))

    def system(self, dt: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """a, b (..., H, N / 2) and c (H, N / 2) of h_t = a h_{t-1} + b x_t, y_t = Re(c^T h_t).

        Args:
            dt: step sizes (..., H); by default the learned ones, (H,).
        """
        A = torch.complex(-upcast(self.A_real_log).exp(), upcast(self.A_imag))
        dt = upcast(self.log_dt).exp() if dt is None else dt
        B, C = (torch.view_as_complex(upcast(weight)) for weight in (self.B, self.C))
        a, b = discretized(A, dt.unsqueeze(-1), self.spec.discretization, B)
        return a, b, 2 * C  # 2: each state represents a conjugate pair


def coefficients_of(system: tuple[Tensor, Tensor, Tensor], values: Tensor) -> Coefficients:
    """The coefficients of H systems a, b, c, each (H, N) or (B, T, H, N), with values (B, T, H, P)."""
    a, b, c = (weight if weight.dim() == 4 else weight[None, None] for weight in system)
    return Coefficients(a, b, values, c)


def discretized(A: Tensor, dt: Tensor, rule: str, B: Tensor | float = 1.0) -> tuple[Tensor, Tensor]:
    """Discretize h' = A h + B x to h_t = a h_{t-1} + b x_t.

    Args:
        A: complex, with negative real parts.
        dt: step sizes that broadcast with A.
        rule: "zoh" (zero-order hold: x is constant during a step) or "bilinear".
        B: complex, broadcasts with A.

    Returns:
        a and b, with the broadcast shape of A and dt.
    """
    if rule == "zoh":
        a, less_one = exp_and_expm1(A.real * dt, A.imag * dt)
        return a, less_one * (B / A)
    z = A * dt
    return (1 + z / 2) / (1 - z / 2), dt / (1 - z / 2) * B


class _ExpAndExpm1(torch.autograd.Function):
    """Both derivatives are the exponential, so that no other tensor is kept for them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        growth, cos = x.exp(), y.cos()
        imaginary = growth * y.sin()
        cos_less_one = -2 * (y / 2).sin().square()
        return torch.complex(growth * cos, imaginary), torch.complex(x.expm1() * cos + cos_less_one, imaginary)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx: Any, exp_gradient: Tensor, expm1_gradient: Tensor) -> tuple[Tensor, Tensor]:
        (exponential,) = ctx.saved_tensors
        gradient = (exp_gradient + expm1_gradient) * exponential.conj()
        return gradient.real, gradient.imag


def exp_and_expm1(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """exp(x + i y) and exp(x + i y) - 1, both with full precision near 0, for x and y of one shape.

    From real functions, because PyTorch computes torch.exp and torch.expm1 of complex numbers one by one.
    """
    exponential, less_one = _ExpAndExpm1.apply(x, y)
    return exponential, less_one


def hippo_normal(N: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of the normal part of HiPPO-LegS, -1/2 I + S with S skew-symmetric.

    S_nk = -sqrt((2 n + 1) (2 k + 1)) / 2 for n > k (Gu et al. 2022, "S4", Appendix C).

    Returns:
        Eigenvalues (N // 2,) with positive imaginary part, largest first, and eigenvectors (N, N // 2) as columns, both
        complex64 and computed in float64.
    """
    p = torch.sqrt(2 * torch.arange(N, dtype=torch.float64) + 1)  # (N,)
    lower = torch.tril(p[:, None] * p, -1) / 2  # (N, N)
    skew = lower.mT - lower
    imaginary, vectors = torch.linalg.eigh(-1j * skew)  # ascending; -i S is Hermitian
    upper = slice(N - N // 2, None)
    eigenvalues = torch.complex(torch.full((N // 2,), -0.5, dtype=torch.float64), imaginary[upper].flip(0))
    return eigenvalues.to(torch.complex64), vectors[:, upper].flip(1).to(torch.complex64)


def linear_imaginary(N: int) -> Tensor:
    """S4D-Lin's imaginary parts pi n, (N,)."""
    return math.pi * torch.arange(N)


def inverse_imaginary(N: int) -> Tensor:
    """S4D-Inv's imaginary parts (2 N / pi) (2 N / (2 n + 1) - 1), (N,), for N conjugate pairs of states."""
    return 2 * N / math.pi * (2 * N / (2 * torch.arange(N) + 1) - 1)


def scan_systems(
    x: Tensor, a: Tensor, b: Tensor, c: Tensor, h0: Tensor | None, resets: Tensor | None, segment: int
) -> tuple[Tensor, Tensor]:
    """Run H systems over a sequence, each on M separate inputs.

    All states of all steps are B T H M N complex numbers. To save memory, time is divided into segments of L steps.
    Inside a segment, outputs are a convolution with K_j = Re(c^T a^j b), j < L, computed by matrix products. Between
    segments, a diagonal scan carries the state. This is exact, and needs only 1 / L of all states.

    Args:
        x: inputs, real, (B, T, H, M).
        a, b, c: decays, input weights and readouts, complex, (H, N).
        h0: initial state, complex, (B, H, M, N); None is zero.
        resets: (B, T) bool; True resets the state before step t.
        segment: L, steps of a segment. It changes speed and memory, but not the result.

    Returns:
        y (B, T, H, M), real, and the final state (B, H, M, N).
    """
    T = x.shape[1]
    whole = T - T % segment
    outputs, h = [], h0
    for begin, end, length in ((0, whole, segment), (whole, T, T - whole)):  # the remaining steps are a short segment
        if end > begin:
            piece_resets = None if resets is None else resets[:, begin:end]
            with torch.autocast(x.device.type, enabled=False):
                y, h = _scan_segments(x[:, begin:end], a, b, c, h, piece_resets, length)
            outputs.append(y)
    assert h is not None  # a sequence has at least one step
    return torch.cat(outputs, 1), h


def _scan_segments(
    x: Tensor, a: Tensor, b: Tensor, c: Tensor, h0: Tensor | None, resets: Tensor | None, L: int
) -> tuple[Tensor, Tensor]:
    """`scan_systems` for a multiple S L of L steps."""
    (B, _, H, M), N = x.shape, a.shape[1]
    x = x.unflatten(1, (-1, L)).movedim(2, -1)  # (B, S, H, M, L)
    # For j = P q + p, a^j is a^(P q) times a^p: few passes over all L powers are needed.
    P = 2 ** (((L - 1).bit_length() + 1) // 2)  # about the square root of L
    Q = -(-L // P)
    low = _powers(a, P)  # (H, P, N): a^(P-1) to 1
    high = _powers(a * low[:, 0], Q)  # (H, Q, N): a^(P) to 1
    # Re(c b) = Re c Re b - Im c Im b
    kernel = real_pairs((c.unsqueeze(1) * high).conj()) @ real_pairs(b.unsqueeze(1) * low).mT  # (H, Q, P)
    kernel = kernel.flatten(1)[:, P * Q - L :]  # (H, L): K_{L-1} to K_0
    document = None if resets is None else resets.unflatten(1, (-1, L)).cumsum(2)  # (B, S, L): number in its segment
    y = _convolved(x, kernel, document)

    late = x if document is None else _only(x, document == document[..., -1:])  # inputs after the last reset
    entry = real_pairs(_products(high, b.unsqueeze(1) * low, L))  # (H, L, 2 N)
    added = torch.view_as_complex(_by_head(late, entry).unflatten(-1, (N, 2)))  # (B, S, H, M, N): by each segment
    if h0 is None and x.shape[1] == 1:  # the only segment begins with the zero state
        return y.movedim(-1, 2).flatten(1, 2), added.squeeze(1)

    # The initial states of the segments.
    decay = a * high[:, 0] * low[:, P * Q - L]  # a^L
    decay = decay.unsqueeze(1).expand(H, M, N).reshape(-1)  # (H M N,)
    forgotten = None if document is None else document[..., -1] > 0  # (B, S): reset within the segment
    start = None if h0 is None else h0.flatten(1)
    h, last = diagonal_scan(decay, added.flatten(2), start, resets=forgotten)  # (B, S, H M N)
    before = torch.cat([torch.zeros_like(h[:, :1]) if start is None else start.unsqueeze(1), h[:, :-1]], 1)
    readout = real_pairs(_products(high, (a * c).unsqueeze(1) * low, L).conj())  # (H, L, 2 N): c a^L to c a
    carried = _by_head(real_pairs(before.view(B, -1, H, M, N)), readout.flip(1).mT)
    y = y + (carried if document is None else _only(carried, document == 0))
    return y.movedim(-1, 2).flatten(1, 2), last.view(B, H, M, N)


def _powers(a: Tensor, n: int) -> Tensor:
    """a^(n-1), ..., a, 1 for a (H, N): (H, n, N). The number of powers doubles with each product."""
    powers = torch.stack([a, torch.ones_like(a)], 1)
    while powers.shape[1] < n:
        a = a * a
        powers = torch.cat([a.unsqueeze(1) * powers, powers], 1)
    return powers[:, powers.shape[1] - n :]


def _products(high: Tensor, low: Tensor, L: int) -> Tensor:
    """The last L products of a row of high (H, Q, N) and a row of low (H, P, N): (H, L, N)."""
    products = (high.unsqueeze(2) * low.unsqueeze(1)).flatten(1, 2)  # (H, Q P, N)
    return products[:, products.shape[1] - L :]


def _convolved(x: Tensor, kernel: Tensor, document: Tensor | None) -> Tensor:
    """Causal convolution inside segments and documents: x (B, S, H, M, L), kernel (H, L) with the largest lag first."""
    L = kernel.shape[1]
    matrix = F.pad(kernel, (0, L - 1)).unfold(1, L, 1).mT.flip(2)  # (H, L, L): from input i to output t, K_{t-i}
    if document is None:
        return _by_head(x, matrix)
    y = torch.zeros_like(x)
    for number in range(int(document.max()) + 1):  # one more than the largest number of resets in a segment
        own = document == number
        y = y + _only(_by_head(_only(x, own), matrix), own)
    return y


def _by_head(x: Tensor, matrices: Tensor) -> Tensor:
    """x (B, S, H, M, I) times a matrix for each head (H, I, J): (B, S, H, M, J).

    On a CPU, batched products are fast only for contiguous matrices. So x and the gradient of y are copied.
    """
    B, S, _, M, _ = x.shape
    rows = x.movedim(2, 0).flatten(1, 3).contiguous()  # (H, B S M, I)
    y = rows @ matrices
    if y.requires_grad:
        y.register_hook(torch.Tensor.contiguous)
    return y.unflatten(1, (B, S, M)).movedim(0, 2)


def _only(x: Tensor, steps: Tensor) -> Tensor:
    """x (B, S, H, M, L) with zeros outside `steps` (B, S, L)."""
    return x.masked_fill(~steps[:, :, None, None], 0.0)


def real_pairs(z: Tensor) -> Tensor:
    """(..., N) complex -> (..., 2 N): real, imaginary, real, ..."""
    return torch.view_as_real(z.resolve_conj()).flatten(-2)


def step_systems(x: Tensor, a: Tensor, b: Tensor, c: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor]:
    """One step: x (B, H, M), a and b (H, N) or (B, H, N), h (B, H, M, N) -> y (B, H, M) and the new state."""
    added = b.unsqueeze(-2) * x.unsqueeze(-1)  # (B, H, M, N)
    h = added if h is None else a.unsqueeze(-2) * h + added
    return (c.unsqueeze(-2) * h).sum(-1).real, h
