"""The interface `ModelState`, for every mixer and every cache class of transformers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from models import tiny
from models.mixers import systems
from models.test_foreign import ATTENTION, MODELS, made
from models.test_foreign_training import SLOW
from torch import Tensor

from ssm.models.backbone import LanguageModel, build_model
from ssm.models.foreign import ForeignModel
from ssm.models.readable import ModelState, Readable
from ssm.models.repairs.reset_state import Resetting
from ssm.models.repairs.restarts import Staggered
from ssm.specs.model import ModelSpec

B, PREFIX, REST = 3, 9, (5, 1, 4)  # sequences, tokens before the state, tokens of the pieces after it
# Configs of models with other cache classes than those in `MODELS`.
CACHES: dict[str, dict[str, Any]] = {
    "Mamba": {"hidden_size": 32, "num_hidden_layers": 2},
    "Mamba2": {"hidden_size": 32, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 16, "state_size": 8,
               "n_groups": 2},
    "Zamba": ATTENTION | {"num_hidden_layers": 4, "num_key_value_heads": 4, "n_mamba_heads": 2, "mamba_d_state": 8,
                          "mamba_dt_rank": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2},
    "Lfm2": ATTENTION | {"layer_types": ["conv", "full_attention", "conv"]},
    "Gemma3": ATTENTION | {"head_dim": 8, "sliding_window": 6,
                           "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
}  # fmt: skip


def ours(mixer: str) -> LanguageModel:
    fields = {"name": "tiny", "d_model": systems.D, "n_layers": 3, "peak_lr": 1e-3, "mixer": systems.SYSTEMS[mixer]}
    built = build_model(ModelSpec.parse(fields, "test"), tiny.VOCABULARY, 0)
    systems.move(built)
    return built.double()


def foreign(name: str, **changes: Any) -> ForeignModel:
    return ForeignModel(made(name, **(CACHES.get(name, {}) | changes)), name)


ENDS_WITH_KEYS = {"layer_types": ["linear_attention", "linear_attention", "full_attention"]}
READABLE: dict[str, Callable[[], Readable]] = {
    **{f"ours: {name}": lambda name=name: ours(name) for name in systems.SYSTEMS},
    "ours: reset state": lambda: Resetting(ours("mamba2"), 5, 0.5),
    "ours: restarts": lambda: Staggered(ours("mamba2"), 3, 6, 2),
    **{name: lambda name=name: foreign(name) for name in (*MODELS, *CACHES)},
    "MiniMax, attention last": lambda: foreign("MiniMax", **ENDS_WITH_KEYS),
}
every_kind = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.exhaustive) if name in SLOW else name for name in READABLE]
)


@cache
def built(name: str) -> Readable:
    return READABLE[name]()


def tokens(seed: int = 0) -> Tensor:
    """(B, T)"""
    return tiny.tokens(seed, B, PREFIX + sum(REST))


@torch.inference_mode()
def state_after(model: Readable, rows: list[int]) -> ModelState:
    """The state after the prefixes of these sequences."""
    return model.hidden(tokens()[rows, :PREFIX])[1]


@torch.inference_mode()
def read_on(model: Readable, state: ModelState, rows: list[int]) -> tuple[Tensor, list[Tensor]]:
    """Logits (n, T - PREFIX, V) after the prefixes of these sequences, and the memories at the end."""
    logits = []
    for piece in tokens()[rows, PREFIX:].split(REST, dim=1):
        hidden, state = model.hidden(piece, state)
        logits.append(model.logits(hidden))
    return torch.cat(logits, 1), state.recurrent_states()


@cache
def alone(name: str) -> list[tuple[Tensor, list[Tensor]]]:
    """`read_on` of each sequence by itself."""
    return [read_on(built(name), state_after(built(name), [row]), [row]) for row in range(B)]


def check(name: str, state: ModelState, rows: list[int]) -> None:
    """Check that reading on from a state of these sequences equals reading each sequence separately."""
    logits, recurrent_states = read_on(built(name), state, rows)
    wanted = torch.cat([alone(name)[row][0] for row in rows])
    share = 1e-9 if wanted.dtype == torch.float64 else 1e-4
    assert wanted.std() > 0.1
    assert (logits - wanted).abs().max() <= share * wanted.std()
    for layer, memory in enumerate(recurrent_states):
        if name != "ours: restarts":  # it has memories of several readings of each sequence
            expected = torch.cat([alone(name)[row][1][layer] for row in rows])
            assert (memory - expected).abs().max() <= share * expected.abs().max()


@every_kind
def test_selected_sequences_are_independent(name: str) -> None:
    """In any order, with repetition. The state, its copies and its selections do not change each other."""
    model, everyone, rows = built(name), list(range(B)), [2, 0, 0, 1]
    state = state_after(model, everyone)
    first, selected, last = state.copy(), state.select(torch.tensor(rows)), state.copy()
    with torch.inference_mode():
        model.hidden(tokens(seed=1), first)
    check(name, selected, rows)
    check(name, state, everyone)
    check(name, last, everyone)


@every_kind
def test_properties_of_a_state(name: str) -> None:
    state = state_after(built(name), list(range(B)))
    one = state.select(torch.tensor([1]))
    assert one.nbytes < state.nbytes <= B * one.nbytes
    assert state.copy().nbytes == state.nbytes
    assert one.recurrent_layers() == state.recurrent_layers() == sorted(state.recurrent_layers())
    assert len(state.recurrent_layers()) == len(state.recurrent_states())
