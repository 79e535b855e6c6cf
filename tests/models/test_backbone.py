"""The model: splits, recomputation and compilation do not change results; initialization; heads."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import tiny
from ssm_kernels.testing.numerics import normal, worst
from torch import Tensor

from ssm.models.backbone import LanguageModel, build_model
from ssm.models.state import State

T = 17
Forward = Callable[[LanguageModel, State], tuple[Tensor, State]]


@pytest.fixture(scope="module")
def double() -> LanguageModel:
    """A model in float64, so that rounding hides no errors."""
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
    """A forward pass over pieces of a sequence, which carries the state."""

    def forward(model: LanguageModel, state: State) -> tuple[Tensor, State]:
        logits = []
        for begin, end in itertools.pairwise(borders):
            piece, state = model(tokens[:, begin:end], state, None if resets is None else resets[:, begin:end])
            logits.append(piece)
        return torch.cat(logits, 1), state

    return forward


@settings(max_examples=8)
@given(st.lists(st.integers(1, T - 1), min_size=1, max_size=4, unique=True), st.booleans())
def test_a_split_changes_nothing(double: LanguageModel, start: State, cuts: list[int], with_resets: bool) -> None:
    tokens = tiny.tokens(1, 2, T)
    resets = torch.rand(2, T, generator=torch.Generator().manual_seed(2)) < 0.2 if with_resets else None
    whole = everything(double, start, in_pieces(tokens, [0, T], resets))
    assert worst(everything(double, start, in_pieces(tokens, [0, *sorted(cuts), T], resets)), whole) < 1e-11


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
def test_compiled_blocks_agree() -> None:
    """torch.compile traces forward and backward without a graph break. The backend does not change the trace."""
    model, tokens = tiny.model(n_layers=1), tiny.tokens(8, 2, T)
    start = tiny.random_state(model(tokens)[1], 9)
    resets = tokens == 0
    expected = everything(model, start, in_pieces(tokens, [0, T], resets))
    model.layers[0].compile(backend="aot_eager", fullgraph=True)
    assert worst(everything(model, start, in_pieces(tokens, [0, T], resets)), expected) < 1e-6


# --- Initialization ---------------------------------------------------------------------------------------------------


def test_initialization_depends_only_on_the_seed() -> None:
    torch.manual_seed(1)
    one = build_model(tiny.spec(), tiny.VOCABULARY, 3)
    expected_next = torch.manual_seed(1).initial_seed(), torch.rand(1)
    torch.manual_seed(2)
    other = build_model(tiny.spec(), tiny.VOCABULARY, 3)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert not torch.equal(one.embedding.weight, build_model(tiny.spec(), tiny.VOCABULARY, 4).embedding.weight)
    assert float(one.embedding.weight.detach().std()) == pytest.approx(0.02, rel=0.15)
    torch.manual_seed(1)
    build_model(tiny.spec(), tiny.VOCABULARY, 3)
    assert torch.equal(torch.rand(1), expected_next[1])


def test_the_authors_initialization() -> None:
    """Uniform -A, log-uniform dt, D = 1, output projections over sqrt(L), convolutions as in torch."""
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
    for convolution in (mixer.conv_weight, mixer.conv_bias):  # as torch.nn.Conv1d with 4 taps for each channel
        assert 0.49 < float(convolution.max()) <= 0.5
        assert -0.5 <= float(convolution.min()) < -0.49
        assert abs(float(convolution.mean())) < 0.03
    bound = (1 / 1024) ** 0.5 / 3**0.5  # a linear map from 1024 inputs, over sqrt of 3 layers
    assert float(mixer.out_proj.weight.abs().max()) == pytest.approx(bound, rel=0.01)


@pytest.mark.parametrize(("share", "count"), [(0.5, 256), (0.25, 128), (1e-3, 1), (1.0, 512)])
def test_slow_heads(share: float, count: int) -> None:
    """The first heads of each layer are slow. All other weights do not change."""
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


def test_a_zero_bias_of_the_convolution() -> None:
    """As in transformers. The weight does not change."""
    uniform, zero = (
        build_model(tiny.spec(conv_bias=name), tiny.VOCABULARY, 0).layers[0].mixer.requires_grad_(False)
        for name in ("uniform", "zero")
    )
    assert float(zero.conv_bias.abs().max()) == 0 < float(uniform.conv_bias.abs().max())
    assert torch.equal(zero.conv_weight, uniform.conv_weight)


def test_defaults_of_new_fields_are_not_in_the_content() -> None:
    """Therefore ids of models did not change when these fields were added."""
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


def test_padding_rows_of_the_vocabulary() -> None:
    model = tiny.model(vocab_multiple=16)
    assert model.embedding.num_embeddings == 32
    logits = model(tiny.tokens(0, 1, 4))[0]
    assert logits.shape == (1, 4, tiny.VOCABULARY)
    logits.sum().backward()
    gradient = model.embedding.weight.grad
    assert gradient is not None
    assert gradient[tiny.VOCABULARY :].abs().max() == 0
