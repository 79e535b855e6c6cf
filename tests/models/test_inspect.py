"""Coefficients, states, attention maps and signals equal what a layer computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import tiny
from models.mixers import systems
from ssm_kernels import causal_conv1d, delta_scan, diagonal_scan, gated_scan, observe, selective_scan
from ssm_kernels.testing.numerics import worst
from torch import Tensor

from ssm.models.backbone import LanguageModel, build_model
from ssm.models.inspect import (
    attention_map,
    attention_mask,
    layer_coefficients,
    layer_maps,
    layer_signals,
)
from ssm.models.mixers.base import Mixer
from ssm.models.mixers.linear_ssm import step_systems
from ssm.specs.mixers import SPECS
from ssm.specs.model import ModelSpec

T, B = 9, 2
KINDS = {name: fields["kind"] for name, fields in systems.SYSTEMS.items()}
NO_MAP = {kind for kind, spec in SPECS.items() if not spec.has_map}
NO_RECURRENCE = {kind for kind, spec in SPECS.items() if not spec.taxonomy.diagonal}
NO_DECAY = NO_RECURRENCE | {kind for kind, spec in SPECS.items() if spec.averages}
linear = pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind not in NO_RECURRENCE])
mapped = pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind not in NO_MAP])
masked = pytest.mark.parametrize(
    "name", [name for name, fields in systems.SYSTEMS.items() if systems.parsed(fields).has_mask]
)
pytestmark = pytest.mark.usefixtures("plain_backend")


def calls(mixer: Mixer, u: Tensor) -> list[tuple[str, Any, Any]]:
    found: list[tuple[str, Any, Any]] = []
    with observe(lambda *call: found.append(call)), torch.no_grad():
        mixer(u)
    return [call for call in found if call[0] not in ("causal_conv1d", "gated_rms_norm")]


def core(mixer: Mixer, u: Tensor) -> Tensor:
    """The output of the recurrence, before skip connections, gates, norms and projections: (B, T, H, P)."""
    kind = mixer.spec.kind
    if kind in ("s4d", "dss", "h3"):
        outputs, h = [], None
        x = mixer.products(u, None, None)[0] if kind == "h3" else u.unsqueeze(-1)
        for t in range(T):
            y, h = step_systems(x[:, t], *(mixer.system() if kind == "h3" else mixer.system_of(u[:, t])), h)
            outputs.append(y)
        return torch.stack(outputs, 1).detach()
    scans = calls(mixer, u)
    inputs, options = scans[0][1:]
    if scans[0][0] == "selective_scan":
        return selective_scan(**inputs._replace(D=None, z=None)._asdict(), **options._asdict())[0].unsqueeze(-1)
    if scans[0][0] == "diagonal_scan":
        return diagonal_scan(**inputs._asdict())[0].unsqueeze(-1).detach()
    if mixer.spec.taxonomy.scan == "delta_scan":
        return delta_scan(**inputs._asdict(), **options._asdict())[0].detach()
    y = gated_scan(**inputs._asdict(), **options._asdict())[0]
    if len(scans) > 1:  # of the normalizer
        y = y / (gated_scan(**scans[1][1]._asdict())[0] + mixer.eps)
    return y


@mapped
def test_the_map_times_the_values_is_the_output_of_the_recurrence(name: str) -> None:
    mixer, u = systems.system(name), systems.inputs(0, B, T)
    weights = attention_map(mixer, u)
    assert weights.dim() == 4
    assert weights.shape[::2] == (B, T)
    assert weights.triu(1).abs().max() == 0
    if mixer.spec.kind == "attention":
        attended = mixer.attended(u, None, None)
        values = attended.values.repeat_interleave(mixer.heads // mixer.groups, 1)
        y = (weights @ values).transpose(1, 2)
        assert worst([mixer._finish(y, attended.gate)], [mixer(u)[0]]) < 1e-12
        return
    if mixer.spec.taxonomy.scan == "delta_scan":
        values = calls(mixer, u)[0][1].v.transpose(1, 2)  # (B, H, T, P)
    else:
        values = mixer.coefficients(u).value.transpose(1, 2)
    got = (weights @ values).transpose(1, 2)
    assert worst([got], [core(mixer, u)]) < 1e-10


@pytest.mark.parametrize("name", ["mamba2", "mamba2, limited dt", "mamba2, mimetic"])
def test_keys_of_mamba_2_include_the_step_size(name: str) -> None:
    """mi eq. 5 and 8: the map includes Delta_j B_j, so the values are x, the output of the convolution."""
    mixer, u = systems.system(name), systems.inputs(6, B, T)
    convolutions: list[Any] = []
    with observe(lambda *call: convolutions.append(call)), torch.no_grad():
        mixer(u)
    inputs, options = next(call[1:] for call in convolutions if call[0] == "causal_conv1d")
    xBC = causal_conv1d(**inputs._asdict(), **options._asdict())[0].detach()
    x, B_, _ = xBC.split([mixer.d_inner, mixer.d_bc, mixer.d_bc], -1)
    found = mixer.coefficients(u)
    assert worst([found.value.flatten(2)], [x]) < 1e-12
    dt = torch.nn.functional.softplus(mixer.in_proj(u).detach()[..., -mixer.heads :] + mixer.dt_bias)
    if mixer.spec.dt_limit[1] is not None:
        dt = dt.clamp(*mixer.spec.dt_limit)
    keys = B_.unflatten(-1, (mixer.spec.n_groups, -1)).repeat_interleave(mixer.heads // mixer.spec.n_groups, 2)
    assert worst([found.key], [(keys * dt.unsqueeze(-1)).detach()]) < 1e-12


@linear
def test_the_states_are_the_memories(name: str) -> None:
    """The last h_t, computed from the coefficients, is the final memory of the mixer."""
    mixer, u = systems.system(name), systems.inputs(1, B, T)
    found = mixer.coefficients(u)
    last = found.states()[:, -1]  # (B, H, N, P)
    memory = mixer(u)[1]["memory"]
    if last.is_complex():
        memory = torch.view_as_complex(memory)
    if mixer.spec.kind == "rwkv4":
        memory = memory[:, : systems.D]  # the averages, without their weights
    if mixer.spec.kind == "retnet":
        memory = mixer._turn(memory, T - 1)  # within a sequence, positions count from its first token
    if mixer.spec.kind == "h3":
        memory = memory.flatten(2, 3).transpose(2, 3)  # (B, H, N, P P)
    # The same numbers in the same order, with other axes
    assert worst([last.flatten(1)], [memory.flatten(1)]) < 1e-10


@linear
def test_decays_are_between_zero_and_one(name: str) -> None:
    """In a running average, the weight of the new value is 1 - A_t."""
    mixer = systems.system(name)
    found = mixer.coefficients(systems.inputs(2, B, T))
    assert 0 < found.A.abs().max() <= 1
    assert mixer.spec.averages == bool(((found.A + found.key - 1).abs() < 1e-12).all())


@masked
def test_the_mask_is_a_product_of_decays(name: str) -> None:
    mixer, u = systems.system(name), systems.inputs(3, B, T)
    mask = attention_mask(mixer, u)
    assert mask.shape == attention_map(mixer, u).shape
    assert mask.triu(1).abs().max() == 0
    if mixer.spec.kind == "attention":
        return
    assert torch.equal(mask.diagonal(dim1=-2, dim2=-1), torch.ones(mask.shape[:3], dtype=mask.dtype))
    found = mixer.coefficients(u)
    if found.bonus is not None:
        assert mask[..., 1, 0].min() == 1  # RWKV-6 reads the last token without decay
    else:
        decays = found.A.abs().mean(-1).expand(B, T, -1)  # (B, T, H)
        assert worst([mask[..., 5, 4]], [decays[:, 5]]) < 1e-12


@pytest.mark.parametrize("name", ["attention", "attention, grouped", "attention, window"])
def test_the_mask_of_attention_includes_weights_of_zero(name: str) -> None:
    """Logits differ so much that most weights underflow."""
    mixer, u = systems.system(name), systems.inputs(7, B, T)
    mixer.in_proj.weight.data *= 100
    assert (attention_map(mixer, u) == 0).sum() > (attention_mask(mixer, u) == 0).sum()
    lag = torch.arange(T)[:, None] - torch.arange(T)
    seen = (lag >= 0) & (lag < (mixer.spec.window or T))
    assert torch.equal(attention_mask(mixer, u), seen.double().expand(B, mixer.heads, T, T))


def test_values_of_rwkv_4_without_weight() -> None:
    """Keys differ so much that some weights underflow. The states still equal the memories."""
    mixer, u = systems.system("rwkv4").float(), systems.inputs(8, B, T).float()
    mixer.key.weight.data *= 200
    found = mixer.coefficients(u)
    assert ((found.A == 1) & (found.value == 0)).any()
    assert found.value.isfinite().all()
    last = found.states()[:, -1].flatten(1)
    assert worst([last], [mixer(u)[1]["memory"][:, : systems.D].flatten(1)]) < 1e-5


def test_polarized_decays_are_exactly_one_and_zero() -> None:
    A = systems.system("mamba1, polarized").coefficients(systems.inputs(4, B, T)).A
    assert torch.equal(A[..., 0], torch.ones_like(A[..., 0]))
    assert torch.equal(A[..., -1], torch.zeros_like(A[..., -1]))
    assert (A[..., 1:-1] > 0).all()
    assert (A[..., 1:-1] < 1).all()


@pytest.mark.parametrize("name", sorted(NO_RECURRENCE))
def test_coefficients_of_other_mixers_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="has no diagonal linear recurrence"):
        systems.system(name).coefficients(systems.inputs(5, B, T))


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind not in NO_DECAY])
def test_the_receptive_field_of_the_memory(name: str) -> None:
    """A token enters together with the tokens after it. RWKV-4 is left out: its weights are of a running average."""
    mixer, at = systems.system(name), 2
    inputs = systems.inputs(5, B, T)
    others = inputs.clone()
    others[:, at] += torch.randn(inputs[:, at].shape, generator=torch.Generator().manual_seed(1))
    one, other = mixer.coefficients(inputs), mixer.coefficients(others)
    moved = [(getattr(one, part) - getattr(other, part)).abs().flatten(2).amax((0, 2)) for part in ("key", "value")]
    changed = sum(moved).nonzero().flatten().tolist()  # type: ignore[union-attr]
    assert changed == list(range(at, at + mixer.spec.receptive_field))


def test_mixers_without_a_map() -> None:
    for name in (name for name, kind in KINDS.items() if kind in NO_MAP):
        with pytest.raises(ValueError, match="has no attention map"):
            attention_map(systems.system(name), systems.inputs(5, 1, 2))


def test_maps_of_a_model() -> None:
    """Each map is computed from the inputs of its layer, and is the mean over heads. A layer can have no map."""
    model, tokens = tiny.model(mixer_at={1: {"kind": "gru"}}), tiny.tokens(0, B, T)
    entered: list[Tensor] = []
    for layer in model.layers:
        layer.mixer.register_forward_pre_hook(lambda _, given: entered.append(given[0]))  # type: ignore[union-attr]
    with torch.no_grad():
        model(tokens)
    found = dict(layer_maps(model, tokens, mask=False))
    assert list(found) == [0, 2]
    for number, weights in found.items():
        by_head = attention_map(model.layers[number].mixer, entered[number])  # type: ignore[arg-type]
        assert weights.shape == (B, T, T)
        assert worst([weights], [sum(by_head.unbind(1)) / by_head.shape[1]]) < 1e-6


def test_signals_of_a_model() -> None:
    model, tokens = tiny.model(), tiny.tokens(0, B, T)
    found = list(layer_signals(model, tokens))
    assert [signals.layer for signals in found] == [0, 1, 2]
    hidden, state = model.hidden(tokens)
    assert torch.equal(model.norm(found[-1].block), hidden)
    for signals, memory in zip(found, state.recurrent_states(), strict=True):
        assert signals.b is not None
        assert signals.h is not None
        assert signals.b.shape == signals.h.shape == (B, T, memory[0].numel())
        assert worst([signals.h[:, -1]], [memory.flatten(1)]) < 1e-5
    assert worst([found[1].mixer], [found[1].block - found[0].block]) < 1e-5


# Every layer has one head, so the mean over heads is the map.
STACK = ["rwkv7", "rwkv7", "deltanet, gate", "gated_deltanet, sigmoid", "kda, odd sizes", "rwkv7", "gla, fast decay"]


def stack() -> LanguageModel:
    """A model with the layers STACK. The later layers depend on the values that layer 0 passes on."""
    layers = [systems.SYSTEMS[name] | ({"head_dim": systems.D, "value_rank": 3} if name == "rwkv7" else {})
              for name in STACK]  # fmt: skip
    fields = {"name": "stack", "d_model": systems.D, "n_layers": len(STACK), "peak_lr": 1e-3, "mixer": layers[0]}
    built = build_model(ModelSpec.parse(fields | {"mixer_at": dict(enumerate(layers))}, "test"), tiny.VOCABULARY, 0)
    systems.move(built)
    return built.double()


def test_maps_with_values_of_the_first_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps times the values in a forward pass of the model are the outputs of its recurrences."""
    model, tokens = stack(), tiny.tokens(1, B, T)
    values: list[Tensor] = []
    read: list[Tensor] = []
    for layer in model.layers:
        finish = layer.mixer._finish
        monkeypatch.setattr(layer.mixer, "_finish", lambda y, *rest, own=finish: (read.append(y), own(y, *rest))[1])
    with torch.no_grad(), observe(lambda name, given, _: values.append(given.v) if name.endswith("_scan") else None):
        model(tokens)
    assert len(values) == len(read) == len(STACK)
    monkeypatch.undo()
    found = dict(layer_maps(model, tokens, mask=False))
    assert list(found) == list(range(len(STACK)))
    for number, weights in found.items():
        assert worst([weights @ values[number][:, :, 0]], [read[number][:, :, 0]]) < 1e-10


@torch.no_grad()
def test_signals_with_values_of_the_first_layer() -> None:
    model, tokens = stack(), tiny.tokens(2, B, T)
    hidden, state = model.hidden(tokens)
    memory = state.recurrent_states()[-1].flatten(1)
    signals = list(layer_signals(model, tokens))
    assert [one.h is not None for one in signals] == [name.startswith("gla") for name in STACK]
    assert worst([model.norm(signals[-1].block), signals[-1].h[:, -1]], [hidden, memory]) < 1e-10
    before = model.embedded(tokens)
    for one in signals:
        assert worst([one.mixer], [one.block - before]) < 1e-10
        before = one.block
    ((number, found),) = layer_coefficients(model, tokens)
    assert number == len(STACK) - 1
    assert worst([found.states()[:, -1].flatten(1)], [memory]) < 1e-10


@pytest.mark.parametrize("name", KINDS)
def test_the_spec_says_which_of_a_b_and_c_are_weights(name: str) -> None:
    mixer = systems.system(name)
    assert mixer.spec.has_a == hasattr(mixer, "A_log")
    assert mixer.spec.has_bc == (mixer.bc_weights is not None)
