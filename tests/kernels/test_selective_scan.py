"""The selective scan: the unrolled sum term by term, and decays of exactly 0."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kernels.cases import DECAYS, PAIRS, make
from kernels.numerics import with_gradients, worst

backends = pytest.mark.parametrize(
    "backend", ["reference", *(name for operation, name in PAIRS if operation == "selective_scan")]
)


@backends
@pytest.mark.parametrize("variant", [0, 5, 14, 15])
@pytest.mark.parametrize("decay", DECAYS)
def test_equals_the_unrolled_sum(backend: str, variant: int, decay: str) -> None:
    case = make("selective_scan", 3, length=13, decay=decay, variant=variant)
    named = {name: x.numpy() for name, x in case.tensors.items()}
    u, A, B, C = (named[name] for name in ("u", "A", "B", "C"))
    delta = named["dt"] + named.get("dt_bias", 0.0)
    delta = np.logaddexp(delta, 0.0) if case.options["dt_softplus"] else delta
    y, end = np.zeros_like(u), np.zeros_like(named["h0"])
    for t in range(u.shape[1]):
        for s in range(-1, t + 1):
            added = named["h0"] if s < 0 else (delta[:, s] * u[:, s])[..., None] * B[:, s, None]  # (B, D, N)
            reached = np.exp(delta[:, s + 1 : t + 1].sum(1)[..., None] * A) if s < t else 1.0
            y[:, t] += np.einsum("bdn,bn->bd", reached * added, C[:, t])
            if t == u.shape[1] - 1:
                end += reached * added
    y += named.get("D", 0.0) * u
    if "z" in named:
        y *= named["z"] / (1 + np.exp(-named["z"]))
    expected = [torch.from_numpy(value) for value in (y, end)]
    assert worst(case.function(backend)(*case.values), expected) < 1e-13


@backends
def test_a_decay_of_zero_has_no_gradient_and_no_memory(backend: str) -> None:
    """A = -inf forgets all but the present step, even where the step size is 0."""
    case = make("selective_scan", 4, length=20, variant=1 + 2 + 4 + 8)
    A, dt = torch.full_like(case.tensors["A"], -torch.inf), case.tensors["dt"].clone()
    dt[:, -1] = 0.0
    case = case._replace(tensors=case.tensors | {"A": A, "dt": dt})
    y, state, *gradients = with_gradients(case.function(backend), case.values, 0)
    assert state.count_nonzero() == y[:, -1].count_nonzero() == 0
    named = dict(zip(case.tensors, gradients, strict=True))
    assert named["A"].count_nonzero() == named["h0"].count_nonzero() == 0
    assert all(x.isfinite().all() for x in gradients)
