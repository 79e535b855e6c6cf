"""`ssm.models.linear`: products by oneDNN have the values and gradients of torch.nn.functional.linear."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from ssm_kernels.native import cpu
from torch import Tensor, nn
from torch.autograd import forward_ad

from ssm.models import linear as module
from ssm.models.linear import FEWEST_MULTIPLY_ADDS, ROWS, Linear, linear, onednn_is_faster, use_linear

LARGE = (64, 256, FEWEST_MULTIPLY_ADDS // (64 * 256))  # M, K, N
TOLERANCE = 1e-5  # of a sum of products of normal numbers, relative to the root of their number
close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN computes all float32 products, on every processor that PyTorch has it for."""
    monkeypatch.setattr(module, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(module, "ROWS", 1)
    monkeypatch.setattr(module, "FEWEST_MULTIPLY_ADDS", 0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes of all products by oneDNN."""
    shapes, compute = [], module._onednn

    def counted(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        shapes.append(x.shape)
        return compute(x, weight, bias)

    monkeypatch.setattr(module, "_onednn", counted)
    monkeypatch.setattr(module, "onednn_is_faster", lambda: True)
    return shapes


def values(sizes: tuple[int, int, int], bias: bool = True, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """x (2, M, K), weight (N, K), bias (N,)."""
    M, K, N = sizes
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, M, K), (N, K), *([(N,)] if bias else [])]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def strided(x: Tensor) -> Tensor:
    """The same values with gaps in memory."""
    return torch.stack((x, torch.full_like(x, torch.nan)), -1)[..., 0]


@pytest.mark.usefixtures("always")
@given(sizes=st.tuples(*[st.integers(1, 70)] * 3), bias=st.booleans(), gaps=st.booleans())
def test_values_and_gradients_are_those_of_float64(sizes: tuple[int, int, int], bias: bool, gaps: bool) -> None:
    exact = [x.requires_grad_() for x in values(sizes, bias)]
    ours = [x.detach().float().requires_grad_() for x in exact]
    weight = torch.randn(2, sizes[0], sizes[2], dtype=torch.float64)
    expected, found = F.linear(*exact), linear(*(strided(x) if gaps else x for x in ours))
    assert found.shape == expected.shape
    assert found.is_contiguous()
    (expected * weight).sum().backward()
    (found * weight.float()).sum().backward()
    scale = TOLERANCE * (2 * max(sizes)) ** 0.5
    torch.testing.assert_close(found.double(), expected, atol=scale, rtol=TOLERANCE)
    for x, y in zip(exact, ours, strict=True):
        assert x.grad is not None
        assert y.grad is not None
        torch.testing.assert_close(y.grad.double(), x.grad, atol=scale, rtol=TOLERANCE)


@pytest.mark.usefixtures("always")
def test_second_derivatives() -> None:
    """Of a sum of squares, with respect to x: 2 W^T W, here applied to a direction."""
    x, weight = values((5, 7, 3), bias=False, dtype=torch.float32)
    x.requires_grad_()
    (first,) = torch.autograd.grad(linear(x, weight).square().sum(), x, create_graph=True)
    direction = torch.randn_like(x)
    (second,) = torch.autograd.grad((first * direction).sum(), x)
    torch.testing.assert_close(second, 2 * direction @ weight.T @ weight)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("wanted", range(3))
def test_only_the_gradients_that_are_wanted(wanted: int) -> None:
    tensors = values((5, 7, 3), dtype=torch.float32)
    tensors[wanted].requires_grad_()
    linear(*tensors).sum().backward()
    assert [x.grad is not None for x in tensors] == [index == wanted for index in range(3)]


def test_a_large_product_is_onednn_forward_and_backward(calls: list[torch.Size]) -> None:
    M, K, N = LARGE
    layer = Linear(K, N)
    layer(torch.randn(2, M // 2, K, requires_grad=True)).sum().backward()
    assert calls == [(M, K), (M, N), (N, M)]
    layer(torch.randn(M // 2, K))  # half the multiply-adds
    linear(torch.randn(ROWS * 9 + 1, K), torch.randn(N, K))  # not a multiple of ROWS
    assert len(calls) == 3


def test_what_is_saved_for_the_gradients(calls: list[torch.Size]) -> None:
    """Not what a frozen factor would need: it may change before the backward pass, as with PyTorch's."""
    M, K, N = LARGE
    layer, x = Linear(K, N, bias=False), torch.randn(M, K)
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    close(layer.weight.grad, x.sum(0).expand(N, K))
    layer.requires_grad_(False)
    x = torch.randn(M, K, requires_grad=True)
    z = 1 * x
    y = layer(z)
    z.zero_()
    y.sum().backward()
    assert x.grad is not None
    close(x.grad, layer.weight.sum(0).expand(M, K))
    assert len(calls) == 4


@pytest.mark.usefixtures("always")
def test_the_operator_gets_a_second_factor_without_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """With gaps or expanded, as the gradients of a sum and of parts of a tensor, it is hundreds of times slower."""
    dense, compute = [], torch.ops.mkldnn._linear_pointwise

    def recorded(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
        dense.append(weight.is_contiguous() or weight.T.is_contiguous())
        return compute(x, weight, *rest)  # type: ignore[no-any-return]

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", recorded)
    for K, N in ((5, 7), (7, 5)):
        x, weight = torch.randn(9, 2 * K, requires_grad=True), torch.randn(N, 2 * K, requires_grad=True)
        y = linear(x[:, :K], weight[:, :K])
        torch.cat((y, y), 1).sum().backward()
    assert dense == 6 * [True]


def test_what_inspects_operators_sees_those_of_torch(calls: list[torch.Size]) -> None:
    """torch.func, traces, compiled and autocast calls, and dtypes other than float32."""
    M, K, N = LARGE
    x, weight = torch.randn(M, K), torch.randn(N, K)
    expected = F.linear(x, weight)
    close(torch.func.vmap(linear, (0, None))(x.view(2, -1, K), weight).view(M, N), expected)
    close(torch.func.grad(lambda x: linear(x, weight).sum())(x), weight.sum(0).expand(M, K))
    close(torch.jit.trace(linear, (x, weight), check_trace=False)(x, weight), expected)
    close(torch.compile(linear, backend="eager", fullgraph=True)(x, weight), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    assert linear(x.double(), weight.double()).dtype == torch.float64
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(linear(forward_ad.make_dual(x, x), weight)).tangent
    close(tangent, expected)
    with torch.backends.mkldnn.flags(enabled=False):
        linear(x, weight)
    close(linear(x, weight.to_sparse_csr()), expected)
    assert not calls
    linear(x, weight)
    assert len(calls) == 1


def test_shapes_that_the_operator_does_not_check(calls: list[torch.Size]) -> None:
    """PyTorch broadcasts a bias, and refuses other weights; the operator would end the process."""
    M, K, N = LARGE
    x, weight, bias = torch.randn(M, K), torch.randn(N, K), torch.tensor(5.0)
    for shape in ((), (1,), (1, N), (M, N)):
        close(linear(x, weight, bias.expand(shape)), F.linear(x, weight) + 5)
    for wrong in (torch.randn(2, N, K), torch.randn(N, K + 1)):
        with pytest.raises(RuntimeError):
            linear(x, wrong)
    assert not calls
    assert Linear(K, N)(input=x).shape == (M, N)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("processor", "sets", "faster"),
    [
        ("x86_64 AuthenticAMD 26 2 AMD EPYC", ("avx512", "avx2", "plain"), True),
        ("x86_64 AuthenticAMD 25 1 AMD EPYC", ("avx2", "plain"), False),
        ("x86_64 GenuineIntel 6 143 Intel(R) Xeon(R)", ("avx512", "avx2", "plain"), False),
        ("aarch64   ", ("plain",), False),
    ],
)
def test_processors(monkeypatch: pytest.MonkeyPatch, processor: str, sets: tuple[str, ...], faster: bool) -> None:
    monkeypatch.setattr(cpu, "description", lambda: (processor, frozenset()))
    monkeypatch.setattr(cpu, "instruction_sets", lambda: sets)
    assert onednn_is_faster.__wrapped__() is faster


def test_layers_of_another_library(calls: list[torch.Size]) -> None:
    """`use_linear` changes nn.Linear, and nothing else of it; its subclasses compute as they do."""

    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    M, K, N = LARGE
    model = nn.Sequential(nn.Linear(K, N), nn.Sequential(Doubled(N, K)))
    x, weights = torch.randn(M, K), model.state_dict()
    expected = model(x)
    use_linear(model)
    close(model(x), expected)
    assert calls == [(M, K)]
    assert all(weights[name].data_ptr() == tensor.data_ptr() for name, tensor in model.state_dict().items())
