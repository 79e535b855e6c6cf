"""Properties of every mixer: splits, recurrent form, resets, autocast and files, with outputs, states and gradients."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from models.mixers import systems
from ssm_kernels.testing.numerics import worst
from torch import Tensor

from ssm.models.mixers import MIXERS
from ssm.models.state import State
from ssm.models.weights_file import load_tensors, save_tensors
from ssm.specs.mixers import SPECS

T, B = 13, 2
every_system = pytest.mark.parametrize("name", systems.SYSTEMS)
build = cache(systems.system)


pytestmark = pytest.mark.usefixtures("plain_backend")


def some_resets(seed: int) -> Tensor:
    return torch.rand(B, T, generator=torch.Generator().manual_seed(seed)) < 0.2


def test_every_kind_is_registered_and_tested() -> None:
    assert set(SPECS) == set(MIXERS) == {fields["kind"] for fields in systems.SYSTEMS.values()}


@every_system
@settings(max_examples=3)
@given(cuts=st.lists(st.integers(1, T - 1), min_size=1, max_size=3, unique=True), with_resets=st.booleans())
def test_a_split_changes_nothing(name: str, cuts: list[int], with_resets: bool) -> None:
    mixer = build(name)
    u, start, resets = systems.inputs(1, B, T), systems.started(mixer, B), some_resets(2) if with_resets else None
    expected = systems.everything(mixer, u, start, systems.in_pieces(mixer, [0, T], resets))
    got = systems.everything(mixer, u, start, systems.in_pieces(mixer, [0, *sorted(cuts), T], resets))
    assert worst(got, expected) < 1e-10


@every_system
def test_the_parallel_form_is_the_recurrence(name: str) -> None:
    """`step` is the paper's recurrence. It shares only the projections with `forward`."""
    mixer = build(name)
    u, start = systems.inputs(3, B, T), systems.started(mixer, B)
    expected = systems.everything(mixer, u, start, systems.stepwise(mixer))
    assert worst(systems.everything(mixer, u, start, systems.in_pieces(mixer, [0, T])), expected) < 1e-10


@every_system
def test_every_weight_and_the_initial_state_matter(name: str) -> None:
    mixer = build(name)
    u, start = systems.inputs(4, B, T), systems.started(mixer, B)
    forward = systems.in_pieces(mixer, [0, T])
    y, ended = forward(u, start)
    gradients = systems.everything(mixer, u, start, forward)[1 + len(systems.numbers(ended)) :]
    assert all(gradient.isfinite().all() and gradient.abs().max() > 1e-8 for gradient in gradients)
    assert y.std() > 1e-3
    assert worst([forward(u, None)[0][:, 0]], [y[:, 0]]) > 1e-4


@every_system
@torch.no_grad()
def test_fading_twice_is_fading_by_the_product(name: str) -> None:
    """The state of an empty past stays empty. A cache does not fade. Of the rest, only a normalizer does."""
    mixer = build(name)
    state = mixer(systems.inputs(8, B, T))[1]
    once, twice = mixer.faded(state, 0.2), mixer.faded(mixer.faded(state, 0.5), 0.4)
    assert worst(systems.numbers(twice), systems.numbers(once)) < 1e-10
    rest = [key for key in state if key != "memory" and not torch.equal(once[key], state[key])]
    assert mixer.spec.has_normalizer == bool(rest), "noise would leave it at zero"
    assert torch.equal(once["memory"], state["memory"]) == (mixer.spec.taxonomy.decay == "cache")
    empty = {key: torch.zeros_like(value) for key, value in state.items()}
    assert all(torch.equal(value, empty[key]) for key, value in mixer.faded(empty, 0.2).items())


@torch.no_grad()
def test_on_a_gpu_every_head_of_attention_has_its_own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """With groups and a mask, float32 would get the kernel that keeps the scores of all heads and tokens."""
    mixer, u, grouped = build("attention, window"), systems.inputs(8, B, T), list[bool]()
    attention = F.scaled_dot_product_attention

    def noted(*tensors: Tensor, enable_gqa: bool, **options: Any) -> Tensor:
        grouped.append(enable_gqa)
        return attention(*tensors, enable_gqa=enable_gqa, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", noted)
    expected = mixer(u)[0]
    monkeypatch.setattr(Tensor, "is_cuda", True)
    assert worst([mixer(u)[0]], [expected]) < 1e-10
    assert grouped == [True, False]


@every_system
@settings(max_examples=4)
@given(places=st.tuples(*[st.sets(st.integers(0, T - 1), max_size=3)] * B), carry=st.booleans())
def test_a_reset_separates_documents(name: str, places: tuple[set[int], ...], carry: bool) -> None:
    """A sequence with resets equals separate sequences from the zero state, also in the final state."""
    mixer = build(name)
    u, start = systems.inputs(5, B, T), systems.started(mixer, B)
    resets = torch.zeros(B, T, dtype=torch.bool)
    for row, mine in enumerate(places):
        resets[row, sorted(mine)] = True
    with torch.no_grad():
        y, ended = mixer(u, start if carry else None, resets)
        for row, mine in enumerate(places):
            pieces, state = [], {n: x[[row]] for n, x in start.items()} if carry else None
            for begin, end in itertools.pairwise(sorted({0, *mine, T})):
                piece, state = mixer(u[[row], begin:end], None if begin in mine else state)
                pieces.append(piece)
            got, expected = systems.pairs({n: x[[row]] for n, x in ended.items()}, state)
            assert worst([y[[row]], *got], [torch.cat(pieces, 1), *expected]) < 1e-10


@every_system
def test_a_zero_row_is_the_zero_state(name: str) -> None:
    """It equals no state, in both forms."""
    mixer, u = build(name), systems.inputs(8, B, T)
    zeroed = systems.whole([systems.started(mixer, B)]).reset(torch.tensor([False, True])).layers[0]
    zeros = {n: x[1:] for n, x in zeroed.items()}
    with torch.no_grad():
        (y, _), (restarted, expected_end) = mixer(u, zeroed), mixer(u[1:])
        _, ended = mixer(u[1:], zeros)
        (step, _), (expected_step, _) = mixer.step(u[1:, 0], zeros), mixer.step(u[1:, 0])
    got, expected = systems.pairs(ended, expected_end)
    assert worst([y[1:], *got, step], [restarted, *expected, expected_step]) < 1e-12


@every_system
def test_the_spec_knows_the_shape_of_the_memory(name: str) -> None:
    mixer = build(name)
    shape = mixer.spec.state_shape(systems.D)
    assert shape[0] == mixer.spec.heads(systems.D)
    for length in (1, 3):
        memory = systems.started(mixer, 3, length)["memory"]
        if mixer.spec.taxonomy.decay != "cache":
            assert memory.shape == (3, *shape)
        elif mixer.spec.window is None:
            assert memory.shape == (3, shape[0], length, *shape[2:])
        else:
            assert memory.shape == (3, shape[0], min(length, mixer.spec.window - 1), *shape[2:])
    assert memory.dtype == torch.float64


@every_system
def test_autocast(name: str) -> None:
    """Under autocast, outputs are close, and the memory of a recurrence stays in float32."""
    mixer, u = systems.system(name).float(), systems.inputs(9, B, T).float()
    exact = mixer(u)[0]
    with torch.autocast("cpu", torch.bfloat16):
        first, state = mixer(u[:, :5])
        rest, state = mixer(u[:, 5:], state)
        last, _ = mixer.step(u[:, 0], state)
    assert worst([torch.cat([first, rest], 1)], [exact]) < 0.1
    assert last.isfinite().all()
    if mixer.spec.taxonomy.decay != "cache":
        assert state["memory"].dtype == torch.float32
    torch.cat([first, rest], 1).float().square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in mixer.parameters())


@every_system
def test_a_state_in_a_file(name: str, tmp_path: Path) -> None:
    state = systems.whole([systems.started(build(name), B, length) for length in (4, 3)])
    save_tensors(tmp_path / "state.safetensors", state.tensors("start."), {})
    back = State.from_tensors(load_tensors(tmp_path / "state.safetensors")[0], "start.")
    for got, expected in zip(back.layers, state.layers, strict=True):
        assert got.keys() == expected.keys()
        for key, tensor in expected.items():
            assert got[key].dtype == tensor.dtype
            assert torch.equal(got[key], tensor)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kind": "linear_attention", "feature_map": "identity"}, "no positive denominator"),
    ({"kind": "linear_attention", "n_features": 3}, "n_features belongs to the feature map favor"),
    ({"kind": "linear_attention", "n_heads": 3}, "n_heads 3 must divide d_model 8"),
    ({"kind": "retnet", "n_heads": 8}, "key_dim must be even; it is d_model / n_heads = 1"),
    ({"kind": "retnet", "key_dim": 3}, "key_dim must be even"),
    ({"kind": "gla", "n_heads": 8}, "2 * n_heads = 16 must divide d_model 8"),
    ({"kind": "gla", "n_heads": 3, "key_dim": 2}, "n_heads 3 must divide d_model 8"),
    ({"kind": "rwkv6"}, "head_dim 64 must divide d_model 8"),
    ({"kind": "attention", "n_heads": 3}, "n_heads 3 must divide d_model 8"),
    ({"kind": "attention", "n_heads": 4, "n_kv_heads": 3}, "n_kv_heads 3 must divide n_heads 4"),
    ({"kind": "attention", "n_heads": 2, "rotary_pct": 0.25}, "rotary_pct 0.25 rotates 1 dimensions, not pairs"),
    ({"kind": "attention", "value_dim": 3}, "shared_dim and value_dim go with a latent_dim"),
    ({"kind": "attention", "latent_dim": 3}, "latent_dim: goes with rotary_pct 0, without n_kv_heads, bias, qk_norm,"),
    ({"kind": "attention", "latent_dim": 3, "rotary_pct": 0, "shared_dim": 2}, "shared_dim 2 must be less than K = 2"),
    ({"kind": "s4d", "d_state": 5}, "a multiple of 2"),
    ({"kind": "s4d", "dt_range": [0.0, 0.1]}, "dt_range must be 0 < low <= high"),
    ({"kind": "dss", "dt_range": [0.2, 0.1]}, "dt_range must be 0 < low <= high"),
    ({"kind": "s5", "d_state": 12, "blocks": 4}, "d_state must be a multiple of 2 * blocks = 8, got 12"),
    ({"kind": "h3", "d_state": 3}, "a multiple of 2"),
    ({"kind": "h3", "head_dim": 3}, "head_dim 3 must divide d_model 8"),
    ({"kind": "mamba1", "a_range": [2.0, 1.0]}, "a_range must be 0 < low <= high"),
    ({"kind": "mamba2", "dt_limit": [0.01, 0.0]}, "dt_limit must be 0 <= low < high"),
    ({"kind": "mamba1", "d_state": 2, "polarize": "both", "polarized_size": "matched"}, "d_state 2 leaves no state"),
    ({"kind": "rglru"}, "blocks 16 must divide the recurrence's 8 channels"),
    ({"kind": "rglru", "a_range": [0.9, 1.0]}, "a_range must be 0 < low <= high < 1"),
    ({"kind": "deltanet", "n_heads": 3}, "n_heads 3 must divide d_model 8, or give key_dim and value_dim"),
    ({"kind": "gated_deltanet", "n_key_heads": 3}, "n_key_heads 3 must divide n_heads 4"),
    ({"kind": "gated_deltanet", "n_heads": 5}, "20 must divide 3 d_model = 24, or give key_dim"),
    ({"kind": "gated_deltanet", "a_range": [0.0, 1.0]}, "a_range must be 0 < low <= high"),
    ({"kind": "kda", "n_key_heads": 3}, "n_key_heads 3 must divide n_heads 4"),
    ({"kind": "kda", "n_heads": 3}, "3 heads of keys must divide d_model 8, or give key_dim"),
    ({"kind": "kda", "dt_range": [0.2, 0.1]}, "dt_range must be 0 < low <= high"),
    ({"kind": "rwkv7"}, "head_dim 64 must divide d_model 8"),
]


@pytest.mark.parametrize(("fields", "says"), REFUSED)
def test_sizes_that_do_not_fit_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("*", r"\*").replace("(", r"\(")):
        systems.parsed(fields).check(systems.D)
