"""Random inputs for every operation, in every form and with every kind of decay."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import ssm_kernels
from ssm_kernels.dtypes import compute_dtype
from ssm_kernels.testing.numerics import normal

OPERATIONS = ("diagonal_scan", "selective_scan", "gated_scan", "delta_scan", "causal_conv1d")  # with a state
NORM = "gated_rms_norm"  # without one
EVERY = (*OPERATIONS, NORM)
# "one" and "zero" are exact, "tiny" is close to 1, "wide" has all magnitudes, "mixed" has all kinds in one sequence.
DECAYS = ("one", "zero", "tiny", "usual", "strong", "wide", "mixed")
CHUNKS = (32, 8, 16, 5, 1, 2, 33, 100)

Function = Callable[..., tuple[Tensor, Tensor]]


class Case(NamedTuple):
    """Inputs of one call."""

    operation: str
    tensors: dict[str, Tensor]  # the inputs with gradients
    resets: Tensor | None
    options: dict[str, Any]

    @property
    def values(self) -> list[Tensor]:
        return list(self.tensors.values())

    def to(self, dtype: torch.dtype) -> Case:
        """Convert to another precision. Complex tensors stay complex."""
        wide = torch.complex64 if dtype == torch.float32 else torch.complex128
        return self._replace(tensors={n: x.to(wide if x.is_complex() else dtype) for n, x in self.tensors.items()})

    def on(self, device: str) -> Case:
        """Move all tensors to a device."""
        resets = None if self.resets is None else self.resets.to(device)
        return self._replace(tensors={n: x.to(device) for n, x in self.tensors.items()}, resets=resets)

    def function(self, backend: str) -> Function:
        """The call as a function of the tensors. It returns y and the state; the norm returns the last step of y."""

        def call(*values: Tensor) -> tuple[Tensor, Tensor]:
            return self._call(dict(zip(self.tensors, values, strict=True)), self.resets, backend)

        return call

    def in_pieces(self, backend: str, cuts: Sequence[int]) -> Function:
        """The same call on pieces of the sequence. Each cut is the first step of a piece; the state is passed on."""
        state_name = "state" if self.operation == "causal_conv1d" else "h0"
        borders = [0, *sorted({cut for cut in cuts if cut < self.length}), self.length]

        def call(*values: Tensor) -> tuple[Tensor, Tensor]:
            named = dict(zip(self.tensors, values, strict=True))
            state, outputs = named.get(state_name), []
            for start, stop in itertools.pairwise(borders):
                piece = {n: x[:, start:stop] if n in self.sequences else x for n, x in named.items()}
                piece |= {} if state is None else {state_name: state}
                resets = None if self.resets is None else self.resets[:, start:stop]
                y, state = self._call(piece, resets, backend)
                outputs.append(y)
            assert state is not None
            return torch.cat(outputs, 1), state

        return call

    @property
    def sequences(self) -> set[str]:
        """Names of the tensors with a time axis."""
        always = {"u", "dt", "B", "C", "z", "q", "k", "v", "b", "x", "beta"}
        return {n for n, x in self.tensors.items() if n in always or (n in ("a", "log_decay") and x.dim() >= 3)}

    @property
    def length(self) -> int:
        return next(x.shape[1] for n, x in self.tensors.items() if n in self.sequences)

    def _call(self, tensors: dict[str, Tensor], resets: Tensor | None, backend: str) -> tuple[Tensor, Tensor]:
        function = getattr(ssm_kernels, self.operation)
        if self.operation == NORM:
            y: Tensor = function(**tensors, backend=backend, **self.options)
            return y, y[:, -1].to(compute_dtype(*tensors.values()), copy=True)
        outputs: tuple[Tensor, Tensor] = function(**tensors, resets=resets, backend=backend, **self.options)
        return outputs


def log_decays(kind: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """Log decays in float64. `kind` is one of DECAYS."""
    generator = torch.Generator().manual_seed(seed + 1)
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    ranges = {"tiny": (-12, -8), "usual": (-3, 0.2), "strong": (0, 1.6), "wide": (-8, 6), "mixed": (-8, 6)}
    low, high = ranges.get(kind, (0, 0))
    values = -(10 ** (low + (high - low) * uniform))
    if kind in ("one", "zero"):
        return torch.full_like(values, 0.0 if kind == "one" else -math.inf)
    if kind == "mixed":
        chosen = torch.randint(4, shape, generator=generator)
        values = values.masked_fill(chosen == 0, 0.0).masked_fill(chosen == 1, -math.inf)
    return values


def make(
    operation: str,
    seed: int = 0,
    length: int = 40,
    batch: int = 2,
    width: int = 6,
    state: int = 4,
    decay: str = "usual",
    variant: int = 0,
    resets: float = 0.0,
    start: bool = True,
) -> Case:
    """A random case in float64.

    Args:
        operation: the name of the operation.
        seed: seed of all random numbers.
        length, batch: T and B.
        width: number of channels, or values per head.
        state: N, K, or the number of taps of a convolution.
        decay: one of DECAYS.
        variant: selects a form and the optional inputs. Any number is valid.
        resets: share of steps with a reset. With 0, `resets` is None.
        start: give an initial state.
    """
    build = {
        "diagonal_scan": _diagonal,
        "selective_scan": _selective,
        "gated_scan": _gated,
        "delta_scan": _delta,
        "causal_conv1d": _convolution,
        NORM: _norm,
    }
    tensors, options = build[operation](seed, batch, length, width, state, decay, variant)
    if not start:
        tensors = {n: x for n, x in tensors.items() if n not in ("h0", "state")}
    flags = torch.rand(batch, length, generator=torch.Generator().manual_seed(seed)) < resets
    return Case(operation, tensors, flags if resets else None, options)


Built = tuple[dict[str, Tensor], dict[str, Any]]


def _diagonal(seed: int, B: int, T: int, D: int, N: int, decay: str, variant: int) -> Built:
    """Variants: a per step or constant x (a, b) real, complex, or only one of them complex."""
    shape = (D,) if variant % 2 else (B, T, D)
    kind = variant // 2 % 4
    a = log_decays(decay, shape, seed).exp()
    b, h0, angle, b_imag, h_imag = normal(seed, (B, T, D), (B, D), shape, (B, T, D), (B, D))
    if kind in (1, 2):
        a = torch.polar(a, angle)
    if kind in (1, 3):
        b = torch.complex(b, b_imag)
    if kind:
        h0 = torch.complex(h0, h_imag)
    return {"a": a, "b": b, "h0": h0}, {}


def _selective(seed: int, B: int, T: int, D: int, N: int, decay: str, variant: int) -> Built:
    """Variants: with and without D, dt_bias, z and softplus. `decay` sets A; dt has usual values."""
    sequence, projection = (B, T, D), (B, T, N)
    u, dt, z, b, c, skip, bias, h0 = normal(seed, *[sequence] * 3, *[projection] * 2, (D,), (D,), (B, D, N))
    A = log_decays(decay, (D, N), seed)
    softplus = variant % 2 == 0
    tensors = {"u": u, "dt": dt if softplus else dt.abs(), "A": A, "B": b, "C": c}
    tensors |= {"D": skip} if variant // 2 % 2 == 0 else {}
    tensors |= {"dt_bias": bias if softplus else bias.abs()} if variant // 4 % 2 == 0 else {}
    tensors |= {"z": z} if variant // 8 % 2 == 0 else {}
    return tensors | {"h0": h0}, {"dt_softplus": softplus}


def _gated(seed: int, B: int, T: int, V: int, K: int, decay: str, variant: int) -> Built:
    """Variants: decay (scalar, vector, constant, none) x bonus x 1 or 2 groups x 1 or 2 heads per group."""
    groups, sharing = 1 + variant // 8 % 2, 1 + variant // 16 % 2
    H = groups * sharing
    q, k, v, h0, bonus = normal(seed, *[(B, T, groups, K)] * 2, (B, T, H, V), (B, H, K, V), (H, K))
    tensors = {"q": q, "k": k, "v": v}
    shapes = {0: (B, T, H), 1: (B, T, H, K), 2: (H,)}
    if variant % 4 in shapes:
        tensors["log_decay"] = log_decays(decay, shapes[variant % 4], seed)
    tensors |= {"bonus": bonus} if variant // 4 % 2 else {}
    return tensors | {"h0": h0}, {"chunk": CHUNKS[seed % len(CHUNKS)]}


def _delta(seed: int, B: int, T: int, V: int, K: int, decay: str, variant: int) -> Built:
    """Variants: decay (none, scalar, vector) x 2 forms x 1 or 2 groups x 1 or 2 heads per group.

    beta is between 0 and 2, as in models. Keys have norm 0.9. With a larger norm, states grow without bound. With norm
    1, a state with K = 1 is overwritten, and its gradients are only rounding errors.
    """
    groups, sharing = 1 + variant // 6 % 2, 1 + variant // 12 % 2
    H = groups * sharing
    q, k, v, h0, a = normal(seed, *[(B, T, groups, K)] * 2, (B, T, H, V), (B, H, K, V), (B, T, H, K))
    tensors = {"q": q, "k": 0.9 * F.normalize(k, dim=-1), "v": v}
    generator = torch.Generator().manual_seed(seed + 2)
    if variant // 3 % 2:
        a = F.normalize(a, dim=-1)
        tensors |= {"a": -a, "b": a * torch.rand(B, T, H, K, generator=generator, dtype=torch.float64)}
    else:
        beta = 2 * torch.rand(B, T, H, generator=generator, dtype=torch.float64)
        tensors["beta"] = torch.where(beta < 0.5, torch.randint(3, beta.shape, generator=generator), beta)
    shapes = {1: (B, T, H), 2: (B, T, H, K)}
    if variant % 3 in shapes:
        tensors["log_decay"] = log_decays(decay, shapes[variant % 3], seed)
    return tensors | {"h0": h0}, {"chunk": CHUNKS[seed % len(CHUNKS)]}


def _convolution(seed: int, B: int, T: int, D: int, K: int, decay: str, variant: int) -> Built:
    """Variants: with and without bias and activation."""
    x, weight, bias, state = normal(seed, (B, T, D), (D, K), (D,), (B, K - 1, D))
    tensors = {"x": x, "weight": weight} | ({"bias": bias} if variant % 2 == 0 else {}) | {"state": state}
    return tensors, {"activation": "silu" if variant // 2 % 2 == 0 else None}


def _norm(seed: int, B: int, T: int, D: int, N: int, decay: str, variant: int) -> Built:
    """Variants: with and without a gate x one or two groups.

    A group of one channel has a large eps. Its gradient is proportional to eps, and with 1e-5 only rounding errors.
    """
    x, weight, gate = normal(seed, (B, T, 2 * D), (2 * D,), (B, T, 2 * D))
    tensors = {"x": x, "weight": weight} | ({"gate": gate} if variant % 2 == 0 else {})
    groups = 1 + variant // 2 % 2
    return tensors, {"groups": groups} | ({"eps": 0.1} if groups == 2 * D else {})


def variants(operation: str) -> list[int]:
    """Variants that together cover every form, and every optional input both given and omitted."""
    return {
        "diagonal_scan": list(range(8)),
        "selective_scan": [0, 1, 14, 7],
        "gated_scan": [24, 9, 18, 11, 29, 12],
        "delta_scan": [20, 23, 13, 16, 0, 9],
        "causal_conv1d": [0, 3],
        NORM: [2, 1],
    }[operation]
