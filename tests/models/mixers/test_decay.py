"""Options of the decay: constant, none, or with other time constants."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models.mixers.systems import SYSTEMS, D, inputs, parsed, system
from ssm_kernels import observe

from ssm.models.mixers import build_mixer

pytestmark = pytest.mark.usefixtures("plain_backend")
# One decay for all heads at initialization, so that it is not random.
STARTS: dict[str, dict[str, Any]] = {
    "mamba2": {"a_range": [2, 2], "dt_range": [0.05, 0.05]},
    "gla": {},
    "rglru": {"a_range": [0.5, 0.5]},
}
CONSTANT = [name for name in SYSTEMS if name.endswith("constant decay")]


@pytest.mark.parametrize("name", CONSTANT)
def test_a_constant_decay_is_the_same_for_all_tokens(name: str) -> None:
    A = system(name).coefficients(inputs(0, 2, 9)).A
    assert torch.equal(A, A[:1, :1].expand_as(A))
    kind = SYSTEMS[name]["kind"]
    gated = system(kind).coefficients(inputs(0, 2, 9)).A
    assert gated.std(1).min() > 1e-4


@pytest.mark.parametrize("name", CONSTANT)
def test_a_constant_decay_starts_where_the_gated_decay_is_for_zero_inputs(name: str) -> None:
    fields = SYSTEMS[name] | STARTS[SYSTEMS[name]["kind"]]
    constant, gated = (build_mixer(parsed(fields | {"decay": of}), D, 2) for of in ("constant", "input_dependent"))
    zeros = torch.zeros(1, 1, D)
    assert torch.equal(constant.coefficients(zeros).A, gated.coefficients(zeros).A)


def test_s4d_with_a_gated_decay_starts_from_its_constant_decay() -> None:
    """Its map of dt is 0 at first, and softplus(log dt) is dt up to a share of dt / 2."""
    constant, gated = (
        build_mixer(parsed({"kind": "s4d", "decay": of}), D, 2).double() for of in ("constant", "input_dependent")
    )
    u = inputs(0, 2, 9)
    A = gated.coefficients(u).A  # (B, T, H, N)
    assert torch.equal(A, A[:1, :1].expand_as(A))
    with torch.no_grad():
        constant.load_state_dict(gated.state_dict(), strict=False)
        constant.log_dt.copy_(F.softplus(constant.log_dt).log())
        assert torch.allclose(gated(u)[0], constant(u)[0], rtol=1e-4, atol=1e-5)
        gated.dt_proj.weight.normal_()
    assert gated.coefficients(u).A.std(1).min() > 1e-6, "it depends on the token"


@pytest.mark.parametrize("rule", ["zoh", "bilinear"])
def test_s4d_with_a_gated_decay_is_its_recurrence(rule: str) -> None:
    """dt_t = softplus(log dt + W u_t); h_t = a_t h_{t-1} + b_t u_t; y_t = 2 Re(C^T h_t), all in float64."""
    mixer = build_mixer(parsed({"kind": "s4d", "d_state": 6, "decay": "input_dependent", "discretization": rule}), D, 2)
    mixer = mixer.double()
    with torch.no_grad():
        mixer.dt_proj.weight.normal_()
        u = inputs(0, 2, 9)
        A = torch.complex(-mixer.A_real_log.exp(), mixer.A_imag)
        B, C = torch.view_as_complex(mixer.B), torch.view_as_complex(mixer.C)
        h, outputs = torch.zeros(2, D, 3, dtype=torch.complex128), []
        for u_t in u.unbind(1):
            z = torch.log1p((mixer.log_dt + u_t @ mixer.dt_proj.weight.T).exp()).unsqueeze(-1) * A  # (B, D, N / 2)
            a, b = (z.exp(), (z.exp() - 1) / A) if rule == "zoh" else ((2 + z) / (2 - z), 2 * z / A / (2 - z))
            h = a * h + b * B * u_t.unsqueeze(-1)
            outputs.append(2 * (C * h).real.sum(-1))
        y, ended = mixer(u)
        expected = F.glu(mixer.out_proj(F.gelu(torch.stack(outputs, 1) + mixer.D * u)))
        assert torch.allclose(y, expected, rtol=1e-9, atol=1e-10)
        assert torch.allclose(torch.view_as_complex(ended["memory"]), h, rtol=1e-9, atol=1e-12)
        bare = mixer.coefficients(u).bare_b.squeeze(-1)  # without the step size of a token
    assert torch.allclose(bare, B * u.unsqueeze(-1))


def test_without_decay_gated_deltanet_has_the_recurrence_of_deltanet() -> None:
    scans: list[Any] = []
    with observe(lambda *call: scans.append(call)), torch.no_grad():
        system("gated_deltanet, no decay")(inputs(0, 2, 9))
    (inputs_of,) = [call[1] for call in scans if call[0] == "delta_scan"]
    assert inputs_of.log_decay is None


def test_the_decays_of_retnet() -> None:
    A = system("retnet, fast decay").coefficients(inputs(0, 1, 3)).A.abs()
    assert A[0, 0, :, 0].tolist() == pytest.approx([1 / 2, 3 / 4])
    A = system("retnet").coefficients(inputs(0, 1, 3)).A.abs()
    assert A[0, 0, :, 0].tolist() == pytest.approx([31 / 32, 63 / 64])


def test_defaults_do_not_change_ids() -> None:
    for kind in ("mamba2", "gla", "rglru", "gated_deltanet", "retnet", "s4d"):
        assert not {"decay", "decay_exponent"} & parsed({"kind": kind}).content().keys()
