"""Every operation with inputs of every kind, for the properties that all backends share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ssm_kernels
import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from kernels.numerics import content, normal, with_gradients
from ssm_kernels import backends
from ssm_kernels.dtypes import compute_dtype
from torch import Tensor

OPERATIONS = ("diagonal_scan", "selective_scan", "gated_scan", "delta_scan", "causal_conv1d")  # with a state
NORM = "gated_rms_norm"  # without one
EVERY = (*OPERATIONS, NORM)
CPU = torch.device("cpu")


def pairs(operations: Sequence[str]) -> list[tuple[str, str]]:
    """(operation, backend) for every backend that this machine can run the operation with on CPU tensors."""
    return [
        (operation, name)
        for operation in operations
        for name in ("torch", "cpp", "triton")
        if name in backends.available(operation) and backends.unavailable(operation, name, CPU) is None
    ]


PAIRS = pairs(EVERY)
# Decays of exactly 1 and exactly 0, next to 1, usual ones, anything, and all of it in one sequence.
DECAYS = ("one", "zero", "tiny", "usual", "strong", "wide", "mixed")
CHUNKS = (32, 8, 16, 5, 1, 2, 33, 100)

Function = Callable[..., tuple[Tensor, Tensor]]


class Case(NamedTuple):
    """Inputs of one call."""

    operation: str
    tensors: dict[str, Tensor]  # what has gradients
    resets: Tensor | None
    options: dict[str, Any]

    @property
    def values(self) -> list[Tensor]:
        return list(self.tensors.values())

    def to(self, dtype: torch.dtype) -> Case:
        """In another precision, complex where it was."""
        wide = torch.complex64 if dtype == torch.float32 else torch.complex128
        return self._replace(tensors={n: x.to(wide if x.is_complex() else dtype) for n, x in self.tensors.items()})

    def function(self, backend: str) -> Function:
        """The call as a function of the tensors: y and the state (for the norm, which has none, the last of y)."""

        def call(*values: Tensor) -> tuple[Tensor, Tensor]:
            return self._call(dict(zip(self.tensors, values, strict=True)), self.resets, backend)

        return call

    def in_pieces(self, backend: str, cuts: Sequence[int]) -> Function:
        """The same sequence cut before these steps, the state carried from piece to piece."""
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
        """The tensors with a time axis."""
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
    """Logs of decays in float64."""
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
    """A case in float64.

    Args:
        operation: its name.
        seed: of all numbers.
        length, batch: T and B.
        width: channels, or values of a head.
        state: N, K, or the taps of a convolution.
        decay: one of DECAYS.
        variant: which of its forms and optional inputs; any number.
        resets: share of steps with a reset; 0 for none at all.
        start: whether it starts from a state.
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
    """Variants: 2 of a (by step, constant) x 4 of numbers (real, complex, either alone)."""
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
    """Variants: with and without D, dt_bias, z and softplus. The decay is in A, and dt is anything but extreme."""
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
    """Variants: 4 of decays (scalar, vector, constant, none) x bonus x heads (1 to 4) and groups."""
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
    """Variants: 3 of decays (none, scalar, vector) x 2 forms x heads (1 to 4) and groups.

    Strengths of 0 to 2, as models have them, and keys a little shorter than 1: with longer ones states grow without
    bound, with those of 1 a state of one key is overwritten, and its gradients are 0 but for rounding.
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
    """Variants: with and without bias, and the activation."""
    x, weight, bias, state = normal(seed, (B, T, D), (D, K), (D,), (B, K - 1, D))
    tensors = {"x": x, "weight": weight} | ({"bias": bias} if variant % 2 == 0 else {}) | {"state": state}
    return tensors, {"activation": "silu" if variant // 2 % 2 == 0 else None}


def _norm(seed: int, B: int, T: int, D: int, N: int, decay: str, variant: int) -> Built:
    """Variants: with and without a gate, all channels together and in two groups."""
    x, weight, gate = normal(seed, (B, T, 2 * D), (2 * D,), (B, T, 2 * D))
    tensors = {"x": x, "weight": weight} | ({"gate": gate} if variant % 2 == 0 else {})
    return tensors, {"groups": 1 + variant // 2 % 2}


def cases(operation: str, longest: int = 300, decays: Sequence[str] = DECAYS) -> st.SearchStrategy[Case]:
    """Any case."""
    return st.builds(
        make,
        operation=st.just(operation),
        seed=st.integers(0, 2**31),
        length=st.one_of(st.integers(1, 20), st.integers(1, longest)),
        batch=st.integers(1, 3),
        width=st.integers(1, 19),
        state=st.integers(1, 9),
        decay=st.sampled_from(decays),
        variant=st.integers(0, 31),
        resets=st.sampled_from((0.0, 0.05, 0.5)),
        start=st.booleans(),
    )


def variants(operation: str) -> list[int]:
    """Numbers that between them reach every form and every optional input, present and absent."""
    return {
        "diagonal_scan": list(range(8)),
        "selective_scan": [0, 1, 14, 7],
        "gated_scan": [24, 9, 18, 11, 29, 12],
        "delta_scan": [20, 23, 13, 16, 0, 9],
        "causal_conv1d": [0, 3],
        NORM: [2, 1],
    }[operation]


# The table of comparisons: every operation in every backend that runs here, and in every variant or in the first one.
# A test that takes a `backend` runs at every other instruction set too when "exhaustive" tests are asked for.
ALL = [(operation, backend, variant) for operation, backend in PAIRS for variant in variants(operation)]
EACH = [(operation, backend, variants(operation)[0]) for operation, backend in PAIRS]
WITH_STATE = [case for case in ALL if case[0] != NORM]
CPP = [case for case in ALL if case[1] == "cpp"]
MOST = [*CPP, *(case for case in EACH if case not in CPP)]  # what is made of torch's own operators in one variant
ROW = ("operation", "backend", "variant")

_known: dict[tuple[str, str, bytes], list[Tensor]] = {}


def exact(case: Case) -> list[Tensor]:
    """Outputs and gradients by the oracle on the same numbers, in float64; computed once for all backends."""
    wide = case.to(torch.float64)
    key = (case.operation, str(case.options | {"chunk": None}), content(case.resets, *wide.values))
    if key not in _known:
        _known[key] = with_gradients(wide.function("reference"), wide.values, 0)
    return _known[key]
