"""The model: nothing changes when a sequence is cut and its state is carried, in outputs, states or gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.numerics import normal, worst
from models import tiny
from torch import Tensor

from ssm.models.backbone import LanguageModel, build_model
from ssm.models.state import State

T = 17
Forward = Callable[[LanguageModel, State], tuple[Tensor, State]]


@pytest.fixture(scope="module")
def double() -> LanguageModel:
    """A model in float64: what is exact then is exact, and rounding hides nothing."""
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
        for begin, end in itertools.pairwise(borders):
            piece, state = model(tokens[:, begin:end], state, None if resets is None else resets[:, begin:end])
            logits.append(piece)
        return torch.cat(logits, 1), state

    return forward


@settings(deadline=None, max_examples=8)
@given(st.lists(st.integers(1, T - 1), min_size=1, max_size=4, unique=True), st.booleans())
def test_cutting_it_anywhere_changes_nothing(
    double: LanguageModel, start: State, cuts: list[int], with_resets: bool
) -> None:
    tokens = tiny.tokens(1, 2, T)
    resets = torch.rand(2, T, generator=torch.Generator().manual_seed(2)) < 0.2 if with_resets else None
    whole = everything(double, start, in_pieces(tokens, [0, T], resets))
    assert worst(everything(double, start, in_pieces(tokens, [0, *sorted(cuts), T], resets)), whole) < 1e-11


def test_step_by_step_decoding_is_the_parallel_form(double: LanguageModel) -> None:
    tokens = tiny.tokens(3, 2, T)
    with torch.no_grad():
        expected, ended = double(tokens)
        state: State | None = None
        for t in range(T):
            logits, state = double(tokens[:, t : t + 1], state)
            assert worst([logits[:, 0]], [expected[:, t]]) < 1e-11
    assert state is not None
    assert worst(tiny.flat(state), tiny.flat(ended)) < 1e-11


@settings(deadline=None, max_examples=10)
@given(st.tuples(*[st.sets(st.integers(0, T - 1), max_size=4)] * 2), st.booleans())
def test_a_reset_separates_the_pieces_of_its_row(
    double: LanguageModel, start: State, places: tuple[set[int], ...], carry: bool
) -> None:
    """Resets inside a sequence give what separate runs from the zero state give, up to the final state."""
    tokens = tiny.tokens(4, 2, T)
    resets = torch.zeros(2, T, dtype=torch.bool)
    with torch.no_grad():
        for row, mine in enumerate(places):
            resets[row, sorted(mine)] = True
        logits, ended = double(tokens, start if carry else None, resets)
        for row, mine in enumerate(places):
            pieces, state = [], start.select(torch.tensor([row])) if carry else None
            for begin, end in itertools.pairwise(sorted({0, *mine, T})):
                piece, state = double(tokens[[row], begin:end], None if begin in mine else state)
                pieces.append(piece)
            found = [logits[[row]], *tiny.flat(ended.select(torch.tensor([row])))]
            assert worst(found, [torch.cat(pieces, 1), *tiny.flat(state)]) < 1e-11


def test_activations_that_are_computed_again_are_the_same(
    double: LanguageModel, start: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a state, and with resets."""
    resets = torch.zeros(2, T, dtype=torch.bool)
    resets[0, 5] = resets[1, 11] = True
    forward = in_pieces(tiny.tokens(0, 2, T), [0, T], resets)
    kept = everything(double, start, forward)
    monkeypatch.setattr(double, "recompute", True)
    again = everything(double, start, forward)
    assert all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))


def test_layers_can_differ() -> None:
    """A hybrid: the named layer has its own mixer, and decoding step by step still is the parallel form."""
    model = tiny.model(mixer_at={1: {"kind": "mamba2", "d_state": 3, "head_dim": 8, "n_groups": 1, "d_conv": 1}})
    shapes = [tuple(memory.shape[1:]) for memory in model(tiny.tokens(0, 2, 3))[1].recurrent_states()]
    assert shapes == [(8, 6, 4), (4, 3, 8), (8, 6, 4)]
    tokens, start = tiny.tokens(1, 2, T), tiny.random_state(model(tiny.tokens(0, 2, 3))[1], 1)
    stepwise = everything(model, start, in_pieces(tokens, list(range(T + 1))))
    assert worst(stepwise, everything(model, start, in_pieces(tokens, [0, T]))) < 1e-4


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
def test_compiled_blocks_agree() -> None:
    """Traced whole, without a break, forward and backward; what the compiler makes of the trace is its own matter."""
    model, tokens = tiny.model(n_layers=1), tiny.tokens(8, 2, T)
    start = tiny.random_state(model(tokens)[1], 9)
    resets = tokens == 0
    expected = everything(model, start, in_pieces(tokens, [0, T], resets))
    model.layers[0].compile(backend="aot_eager", fullgraph=True)
    assert worst(everything(model, start, in_pieces(tokens, [0, T], resets)), expected) < 1e-6


# --- What a model is built from ---------------------------------------------------------------------------------------


def test_a_model_is_a_function_of_its_seed() -> None:
    torch.manual_seed(1)
    one = build_model(tiny.spec(), tiny.VOCABULARY, 3)
    expected_next = torch.manual_seed(1).initial_seed(), torch.rand(1)
    torch.manual_seed(2)
    other = build_model(tiny.spec(), tiny.VOCABULARY, 3)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert not torch.equal(one.embedding.weight, build_model(tiny.spec(), tiny.VOCABULARY, 4).embedding.weight)
    torch.manual_seed(1)
    build_model(tiny.spec(), tiny.VOCABULARY, 3)
    assert torch.equal(torch.rand(1), expected_next[1])


def test_initialization_is_the_authors() -> None:
    """-A uniform in its range, dt log-uniform, D one, output projections over sqrt(L), convolutions as torch's."""
    spec = tiny.spec(d_model=256, expand=4, head_dim=2, a_range=(2.0, 5.0), dt_range=(1e-3, 1e-1))
    mixer = build_model(spec, tiny.VOCABULARY, 0).layers[0].mixer.requires_grad_(False)
    a, dt = mixer.A_log.exp(), torch.nn.functional.softplus(mixer.dt_bias)  # (512,)
    assert 2 <= a.min() < 2.1
    assert 4.9 < a.max() <= 5
    assert float(a.mean()) == pytest.approx(3.5, abs=0.15)
    assert float(dt.min()) == pytest.approx(1e-3, rel=0.1)
    assert float(dt.max()) == pytest.approx(1e-1, rel=0.1)
    assert float(dt.log10().mean()) == pytest.approx(-2, abs=0.1)  # log-uniform: the middle is the geometric mean
    assert torch.equal(mixer.D, torch.ones(512))
    for convolution in (mixer.conv_weight, mixer.conv_bias):  # torch.nn.Conv1d's of 4 taps a channel
        assert 0.49 < float(convolution.max()) <= 0.5
        assert -0.5 <= float(convolution.min()) < -0.49
        assert abs(float(convolution.mean())) < 0.03
    bound = (1 / 1024) ** 0.5 / 3**0.5  # a linear map from 1024 inputs, over sqrt of 3 layers
    assert float(mixer.out_proj.weight.abs().max()) == pytest.approx(bound, rel=0.01)


@pytest.mark.parametrize(("share", "count"), [(0.5, 256), (0.25, 128), (1e-3, 1), (1.0, 512)])
def test_some_heads_are_slow_among_others(share: float, count: int) -> None:
    """The first so many of every layer; the others, and all that is no head's, are what they are without them."""
    slow = {"share": share, "a_range": (7.0, 8.0), "dt_range": (1e-4, 1e-3)}
    plain, mixed = (
        build_model(
            tiny.spec(d_model=256, expand=4, head_dim=2, a_range=(2.0, 5.0), dt_range=(1e-2, 1e-1), slow_heads=heads),
            tiny.VOCABULARY,
            0,
        )
        .layers[0]
        .mixer.requires_grad_(False)
        for heads in (None, slow)
    )
    a, dt = mixed.A_log.exp(), torch.nn.functional.softplus(mixed.dt_bias)  # (512,)
    assert ((a > 6.9) & (dt < 1.01e-3)).tolist() == [head < count for head in range(512)]
    assert float(dt[:count].min()) >= 0.99e-4
    for name in ("A_log", "dt_bias"):
        assert torch.equal(getattr(mixed, name)[count:], getattr(plain, name)[count:])
    assert torch.equal(mixed.conv_weight, plain.conv_weight)


def test_a_convolutions_bias_can_be_zero() -> None:
    """As transformers has it; its weight stays as it is."""
    uniform, zero = (
        build_model(tiny.spec(conv_bias=name), tiny.VOCABULARY, 0).layers[0].mixer.requires_grad_(False)
        for name in ("uniform", "zero")
    )
    assert float(zero.conv_bias.abs().max()) == 0 < float(uniform.conv_bias.abs().max())
    assert torch.equal(zero.conv_weight, uniform.conv_weight)


def test_what_goes_without_saying_leaves_no_trace_in_the_content() -> None:
    """So that the ids of models stay what they were before there were these fields."""
    assert not {"slow_heads", "conv_bias"} & tiny.spec().content()["mixer"].keys()
    content = tiny.spec(slow_heads={"share": 0.5}, conv_bias="zero").content()["mixer"]
    assert content["slow_heads"] == {"share": 0.5, "a_range": [1.0, 1.0], "dt_range": [1e-4, 1e-3]}
    assert content["conv_bias"] == "zero"


def test_tied_and_untied_heads() -> None:
    tied, untied = (build_model(tiny.spec(tie_embeddings=tie), tiny.VOCABULARY, 0) for tie in (True, False))
    assert untied.parameters_count - tied.parameters_count == tiny.VOCABULARY * 16
    hidden = torch.randn(2, 16)
    assert torch.equal(tied.logits(hidden), hidden @ tied.embedding.weight.T)
    assert torch.equal(untied.logits(hidden), hidden @ untied.head.weight.T)


def test_rows_that_round_up_the_vocabulary_are_no_tokens() -> None:
    model = tiny.model(vocab_multiple=16)
    assert model.embedding.num_embeddings == 32
    logits = model(tiny.tokens(0, 1, 4))[0]
    assert logits.shape == (1, 4, tiny.VOCABULARY)
    logits.sum().backward()
    gradient = model.embedding.weight.grad
    assert gradient is not None
    assert gradient[tiny.VOCABULARY :].abs().max() == 0
