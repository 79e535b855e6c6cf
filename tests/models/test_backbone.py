"""The model: nothing changes when a sequence is cut and its state is carried, in outputs, states or gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.numerics import normal, worst
from models import tiny
from torch import Tensor

from ssm.models.backbone import LanguageModel, build_model
from ssm.models.state import State
from ssm.specs.model import ModelSpec

T = 17
Forward = Callable[[LanguageModel, State], tuple[Tensor, State]]


@pytest.fixture(scope="module")
def double() -> LanguageModel:
    """A model in float64 (its dt stays in float32: dt.float())."""
    return tiny.model().double()


@pytest.fixture(scope="module")
def start(double: LanguageModel) -> State:
    """A state that is not zero, for two sequences."""
    return tiny.random_state(double(tiny.tokens(0, 2, 3))[1], 5).map(Tensor.double)


def everything(model: LanguageModel, start: State, forward: Forward) -> list[Tensor]:
    """Logits, final state, and the gradients of every parameter and of the initial state under one random loss."""
    leaves = start.map(lambda tensor: tensor.clone().requires_grad_())
    logits, ended = forward(model, leaves)
    results = [logits, *tiny.flat(ended)]
    weights = normal(7, *(tuple(result.shape) for result in results))
    loss = sum((result * weight).sum() for result, weight in zip(results, weights, strict=True))
    gradients = torch.autograd.grad(loss, [*model.parameters(), *tiny.flat(leaves)])
    return [*(result.detach() for result in results), *gradients]


def in_pieces(tokens: Tensor, borders: list[int], resets: Tensor | None = None) -> Forward:
    """The forward pass over pieces of a sequence, with the state carried."""

    def forward(model: LanguageModel, state: State) -> tuple[Tensor, State]:
        logits = []
        for begin, end in zip(borders[:-1], borders[1:], strict=True):
            piece, state = model(tokens[:, begin:end], state, None if resets is None else resets[:, begin:end])
            logits.append(piece)
        return torch.cat(logits, 1), state

    return forward


@settings(deadline=None, max_examples=12)
@given(st.lists(st.integers(1, T - 1), min_size=1, max_size=4, unique=True), st.booleans())
def test_cutting_it_anywhere_changes_nothing(
    double: LanguageModel, start: State, cuts: list[int], with_resets: bool
) -> None:
    tokens = tiny.tokens(1, 2, T)
    resets = torch.rand(2, T, generator=torch.Generator().manual_seed(2)) < 0.2 if with_resets else None
    whole = everything(double, start, in_pieces(tokens, [0, T], resets))
    assert worst(everything(double, start, in_pieces(tokens, [0, *sorted(cuts), T], resets)), whole) < 1e-7


def test_step_by_step_decoding_is_the_parallel_form() -> None:
    model = tiny.model()
    tokens = tiny.tokens(3, 2, T)
    with torch.no_grad():
        expected, ended = model(tokens)
        state: State | None = None
        for t in range(T):
            logits, state = model(tokens[:, t : t + 1], state)
            assert (logits[:, 0] - expected[:, t]).abs().max() < 1e-5
    assert state is not None
    assert worst(tiny.flat(state), tiny.flat(ended)) < 1e-6


@settings(deadline=None, max_examples=20)
@given(st.sets(st.integers(0, T - 1), max_size=5), st.booleans())
def test_a_reset_separates_the_pieces(double: LanguageModel, start: State, places: set[int], carry: bool) -> None:
    """Resets inside a sequence give what separate runs from the zero state give, up to the final state."""
    tokens = tiny.tokens(4, 2, T)
    resets = torch.zeros(2, T, dtype=torch.bool)
    resets[:, sorted(places)] = True
    initial = start if carry else None
    with torch.no_grad():
        logits, ended = double(tokens, initial, resets)
        borders = sorted({0, *places, T})
        pieces, state = [], initial
        for begin, end in zip(borders[:-1], borders[1:], strict=True):
            piece, state = double(tokens[:, begin:end], None if begin in places else state)
            pieces.append(piece)
    assert worst([logits, *tiny.flat(ended)], [torch.cat(pieces, 1), *tiny.flat(state)]) < 1e-7


def test_rows_reset_on_their_own(double: LanguageModel, start: State) -> None:
    tokens = tiny.tokens(5, 2, T)
    resets = torch.zeros(2, T, dtype=torch.bool)
    resets[1, 6] = True
    with torch.no_grad():
        logits, ended = double(tokens, start, resets)
        untouched = double(tokens[:1], start.select(torch.tensor([0])))
        anew = double(tokens[1:, 6:])
    assert worst([logits[:1], *tiny.flat(ended.select(torch.tensor([0])))], [untouched[0], *tiny.flat(untouched[1])]) < 1e-7
    assert worst([logits[1:, 6:], *tiny.flat(ended.select(torch.tensor([1])))], [anew[0], *tiny.flat(anew[1])]) < 1e-7


def test_a_zero_state_is_no_state(double: LanguageModel, start: State) -> None:
    tokens = tiny.tokens(6, 2, T)
    assert worst(
        everything(double, start.zeros(2), in_pieces(tokens, [0, T])),
        everything(double, start, lambda model, leaves: _untouched(model, tokens, leaves)),
    ) < 1e-9  # fmt: skip


def _untouched(model: LanguageModel, tokens: Tensor, leaves: State) -> tuple[Tensor, State]:
    raise NotImplementedError
