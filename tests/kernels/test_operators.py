"""Every operation on every backend behaves as PyTorch expects of an operator."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from kernels.cases import ALL, EACH, MOST, ROW, Recording, exhaustive, run
from ssm_kernels import backends
from ssm_kernels.operators import BackendFunctions
from ssm_kernels.testing.cases import EVERY, NORM, make, variants
from ssm_kernels.testing.numerics import same_bits, threads, with_gradients, worst
from torch import Tensor
from torch.autograd import forward_ad

each, most = (pytest.mark.parametrize(ROW, rows) for rows in (EACH, MOST))
first = pytest.mark.parametrize(ROW, [*EACH, *exhaustive(*(case for case in ALL if case not in EACH))])
TRACED = [(name, "cpp", variants(name)[0]) for name in ("gated_scan", "selective_scan")]


def forget(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reset the choice of backends, as in a new process."""
    operator = import_module(f"ssm_kernels.{operation}").operator
    monkeypatch.setattr(backends, "_chosen", {})
    monkeypatch.setattr(operator, "_functions", {name: BackendFunctions() for name in operator.backends})


@most
def test_results_do_not_depend_on_the_number_of_threads(operation: str, backend: str, variant: int) -> None:
    """Threads may share a sequence, a group of channels, or neither. torch promises this only for a fixed number."""
    for batch, length, width, state in ((1, 260, 130, 7), (3, 70, 70, 16), (9, 31, 20, 5)):
        case = make(operation, 2, length, batch, width, state, variant=variant).to(torch.float32)
        results = []
        for number in (1, 2, 3, 3) if backend == "cpp" else (2, 2):
            with threads(number):
                results.append(run(case, backend))
        assert all(same_bits(other, results[0]) for other in results[1:])


@each
def test_gradients_of_one_output(operation: str, backend: str, variant: int) -> None:
    """The gradients of only y and of only the state add up to the gradients of both."""
    for length in (1, 3, 40):
        case = make(operation, 3, length=length, variant=variant)
        leaves = [x.requires_grad_() for x in case.values]
        y, state = case.function(backend)(*leaves)
        assert y.grad_fn.name(), "tools that print graphs call it"
        parts = [torch.autograd.grad(x.sum(), leaves, retain_graph=True, materialize_grads=True) for x in (y, state)]
        whole = torch.autograd.grad(y.sum() + state.sum(), leaves, materialize_grads=True)
        assert worst([a + b for a, b in zip(*parts, strict=True)], whole) < 1e-13


@pytest.mark.parametrize(ROW, [case for case in MOST if case[0] != NORM])
def test_without_a_state_it_starts_from_zeros(operation: str, backend: str, variant: int) -> None:
    for length in (20, 45):
        case = make(operation, 18, length=length, variant=variant)
        name = "state" if operation == "causal_conv1d" else "h0"
        zeros = case._replace(tensors=case.tensors | {name: torch.zeros_like(case.tensors[name])})
        none = case._replace(tensors={n: x for n, x in case.tensors.items() if n != name})
        expected = run(zeros, backend)
        del expected[2 + list(case.tensors).index(name)]
        assert worst(run(none, backend), expected) < 1e-13


@each
def test_some_inputs_may_need_no_gradient(operation: str, backend: str, variant: int) -> None:
    case = make(operation, 4, variant=variant)
    expected = run(case, backend)
    for chosen in range(len(case.values)):
        values = list(case.values)

        def of_one(x: Tensor, at: int = chosen, values: list[Tensor] = values) -> tuple[Tensor, Tensor]:
            return case.function(backend)(*values[:at], x, *values[at + 1 :])

        assert same_bits(with_gradients(of_one, [values[chosen]], 0)[2:], [expected[2 + chosen]])


@most
def test_inputs_may_have_any_memory_layout(operation: str, backend: str, variant: int) -> None:
    """Transposed, strided, sliced and expanded inputs, and expanded gradients, work like contiguous ones.

    Slices of wider rows come from a mixer's projections. The memory around a slice is NaN here.
    """
    case = make(operation, 5, length=19, batch=2, variant=variant)
    case = case._replace(tensors={n: x[:1].expand_as(x) if x.dim() > 1 else x for n, x in case.tensors.items()})
    expected = with_gradients(case.function(backend), [x.contiguous() for x in case.values], 0)
    nans = [torch.full_like(x, torch.nan) for x in case.values]
    apart = [torch.stack([nan, x], -1)[..., 1] for x, nan in zip(case.values, nans, strict=True)]
    sliced = [
        torch.cat([nan, x, nan], -1)[..., x.shape[-1] : -x.shape[-1]] for x, nan in zip(case.values, nans, strict=True)
    ]
    turned = [x.transpose(0, -1).contiguous().transpose(0, -1) for x in case.values]
    assert not any(x.is_contiguous() for x in apart)
    for values in (case.values, apart, sliced, turned):
        leaves = [x.detach().requires_grad_() for x in values]
        y, state = case.function(backend)(*leaves)
        assert worst([y, state], expected[:2]) < 1e-13
        weight = torch.ones((), dtype=y.dtype)
        got = torch.autograd.grad([y, state], leaves, [weight.expand_as(y), weight.expand_as(state)])
        plain = [x.detach().contiguous().requires_grad_() for x in values]
        outputs = case.function(backend)(*plain)
        assert worst(got, torch.autograd.grad(outputs, plain, [torch.ones_like(x) for x in outputs])) < 1e-13


@most
def test_conjugated_and_negated_views(operation: str, backend: str, variant: int) -> None:
    """Inputs and gradients may be lazy views, whose memory holds other numbers than the view."""
    case = make(operation, 17, length=9, variant=variant)

    def lazy(x: Tensor) -> Tensor:
        return x.conj() if x.is_complex() else torch.complex(x, -x).conj().imag

    views = [lazy(x) for x in case.values]
    assert all(x.is_conj() or x.is_neg() for x in views)
    results = []
    for inputs in (views, [x.resolve_conj().resolve_neg() for x in views]):
        leaves = [x.detach().requires_grad_() for x in inputs]
        outputs = case.function(backend)(*leaves)
        weights = [lazy(x.detach()) for x in outputs]
        weights = weights if inputs is views else [x.resolve_conj().resolve_neg() for x in weights]
        results.append([*outputs, *torch.autograd.grad(outputs, leaves, weights)])
    assert worst(*results) < 1e-13


@most
def test_inputs_do_not_change_and_no_memory_is_shared(operation: str, backend: str, variant: int) -> None:
    """Every output and gradient has its own memory."""
    case = make(operation, 6, variant=variant, resets=0.1).to(torch.float32)
    before = [x.clone() for x in case.values]
    leaves = [x.requires_grad_() for x in case.values]
    outputs = case.function(backend)(*leaves)
    grads = [torch.randn_like(x) for x in outputs]
    kept = [x.clone() for x in (*outputs, *grads)]
    gradients = torch.autograd.grad(outputs, leaves, grads)
    assert same_bits([x.detach() for x in leaves], before)
    assert same_bits([x.detach() for x in (*outputs, *grads)], [x.detach() for x in kept])
    places = [x.untyped_storage().data_ptr() for x in (*leaves, *outputs, *grads, *gradients) if x.numel()]
    assert len(places) == len(set(places))
    state = outputs[1]
    assert state.untyped_storage().nbytes() == state.numel() * state.element_size()  # not a view of a larger tensor


@pytest.mark.one_build
@first
def test_a_compiled_call_equals_an_eager_call(operation: str, backend: str, variant: int) -> None:
    case = make(operation, 7, length=20, variant=variant, resets=0.1).to(torch.float32)
    function = case.function(backend)

    def used(*values: Tensor) -> tuple[Tensor, Tensor]:
        y, state = function(*(x * 2 for x in values))
        return y * 3, state

    torch.compiler.reset()
    compiled = torch.compile(used, backend="aot_eager", fullgraph=True)
    assert same_bits(with_gradients(compiled, case.values, 0), with_gradients(used, case.values, 0))


@pytest.mark.parametrize("operation", [EVERY[0], *exhaustive(*EVERY[1:])])
def test_the_first_call_may_be_compiled(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled function does not need an eager call before it, with one backend or with several."""
    case = make(operation, 7, length=5).to(torch.float32)
    expected = case.function("auto")(*case.values)
    used = ("auto", "torch", "reference")
    for functions in (*((name,) for name in used), used):
        forget(operation, monkeypatch)
        torch.compiler.reset()

        def call(*values: Tensor, names: tuple[str, ...] = functions) -> list[tuple[Tensor, Tensor]]:
            return [case.function(name)(*values) for name in names]

        for got in torch.compile(call, backend="eager", fullgraph=True)(*case.values):
            assert worst(got, expected) < 1e-5


@each
def test_autocast_has_no_effect_inside_an_operation(operation: str, backend: str, variant: int) -> None:
    """A product of decays in bfloat16 has an error of 1%, and a state in bfloat16 forgets small additions."""
    for length in (70, 20):
        case = make(operation, 8, length=length, variant=variant).to(torch.float32)
        expected = run(case, backend)
        with torch.autocast("cpu", torch.bfloat16):
            assert same_bits(run(case, backend), expected)


@most
def test_precisions_may_be_mixed(operation: str, backend: str, variant: int) -> None:
    """As with autocast: outputs of matrix products in bfloat16, parameters and state in float32."""
    case = make(operation, 9, variant=variant).to(torch.float32)
    half = {n: x.bfloat16() for n, x in case.tensors.items() if n in case.sequences and not x.is_complex()}
    mixed = case._replace(tensors=case.tensors | half)
    wide = [x.to(torch.float32) if x.dtype == torch.bfloat16 else x for x in mixed.values]
    got, expected = (with_gradients(case.function(backend), x, 0) for x in (mixed.values, wide))
    assert worst(got, [x.to(y.dtype) for x, y in zip(expected, got, strict=True)]) < 1e-2
    assert got[1].dtype == expected[1].dtype
    assert worst(got[1:2], expected[1:2]) < (1e-2 if operation == NORM else 1e-6)


@each
def test_training_works_after_inference(operation: str, backend: str, variant: int) -> None:
    """Constants that were created in inference mode must not enter a graph. Both modes give the same bits."""
    case = make(operation, 10, length=29, variant=variant)
    with torch.inference_mode():
        inference = case.function(backend)(*case.values)
    assert same_bits([x.clone() for x in inference], run(case, backend)[:2])


@each
def test_error_of_a_missing_derivative(operation: str, backend: str, variant: int) -> None:
    """Second derivatives and forward mode raise an error in compiled backends. The others have them."""
    case = make(operation, 12, length=5, variant=variant)

    def penalty(name: str) -> Tensor:
        leaves = [x.detach().clone().requires_grad_() for x in case.values]
        loss = sum(x.abs().sum() for x in case.function(name)(*leaves))
        gradients = torch.autograd.grad(loss, leaves, create_graph=True)
        total = loss + sum(x.abs().square().sum() for x in gradients)
        return torch.autograd.grad(total, leaves)[0]

    def forward_mode(name: str) -> Tensor:
        with forward_ad.dual_level():
            first, *rest = case.values
            y, _ = case.function(name)(forward_ad.make_dual(first, torch.ones_like(first)), *rest)
            tangent = forward_ad.unpack_dual(y).tangent
            assert tangent is not None
            return tangent

    expected = (penalty("reference"), forward_mode("reference"))
    if hasattr(backends.module(operation, backend), "run"):  # made of torch's own operations
        assert worst((penalty(backend), forward_mode(backend)), expected) < 1e-12
        return
    with pytest.raises(RuntimeError, match=rf"{operation}: backend '{backend}' has no second derivatives.*reference"):
        penalty(backend)
    with pytest.raises(RuntimeError, match=rf"{operation}: backend '{backend}' has no forward-mode.*reference"):
        forward_mode(backend)
    with pytest.raises(RuntimeError, match="has no forward-mode"):
        torch.func.jvp(case.function(backend), tuple(case.values), tuple(case.values))
    others = case.values[1:]
    for transformed in (
        torch.func.grad(lambda x: case.function(backend)(x, *others)[0].abs().sum()),
        torch.func.grad(lambda x: torch.vmap(lambda y: case.function(backend)(y, *others)[0])(x[None]).abs().sum()),
        lambda x: torch.func.vjp(lambda y: case.function(backend)(y, *others)[0], x),
    ):
        with pytest.raises(RuntimeError, match=rf"{operation}: backend '{backend}' has no gradients of torch.func; "):
            transformed(case.values[0].detach())
    with forward_ad.dual_level():
        case.function(backend)(*case.values)  # no error without a derivative


@each
def test_first_gradients_with_create_graph(operation: str, backend: str, variant: int) -> None:
    """create_graph without a second derivative is not an error."""
    case = make(operation, 13, length=5, variant=variant)
    leaves = [x.requires_grad_() for x in case.values]
    loss = sum(x.abs().sum() for x in case.function(backend)(*leaves))
    kept = torch.autograd.grad(loss, leaves, create_graph=True)
    assert worst(kept, torch.autograd.grad(loss, leaves)) < 1e-13


@each
def test_vmap(operation: str, backend: str, variant: int) -> None:
    """Outputs and gradients; vmap hides that an input requires a gradient."""
    case = make(operation, 15, length=70, variant=variant)
    stacks = [torch.stack([x, 0.5 * x]).requires_grad_() for x in case.values]
    got = torch.vmap(case.function(backend))(*stacks)
    gradients = torch.autograd.grad(sum(x.abs().sum() for x in got), stacks)
    for i in range(2):
        leaves = [x[i].detach().requires_grad_() for x in stacks]
        expected = case.function(backend)(*leaves)
        assert same_bits([x[i] for x in got], list(expected))
        alone = torch.autograd.grad(sum(x.abs().sum() for x in expected), leaves)
        assert same_bits([x[i] for x in gradients], list(alone))


@each
def test_vmap_over_the_backward_pass(operation: str, backend: str, variant: int) -> None:
    """Many gradients of one call, as for a Jacobian: by `is_grads_batched` and by torch.vmap."""
    case = make(operation, 19, length=5, variant=variant)
    leaves = [x.requires_grad_() for x in case.values]
    outputs = case.function(backend)(*leaves)
    weights = [torch.stack([torch.ones_like(x), torch.randn_like(x)]) for x in outputs]

    def gradients(*grads: Tensor, batched: bool = False) -> tuple[Tensor, ...]:
        return torch.autograd.grad(outputs, leaves, grads, retain_graph=True, is_grads_batched=batched)

    alone = [gradients(*(w[i] for w in weights)) for i in range(2)]
    for got in (gradients(*weights, batched=True), torch.vmap(gradients)(*weights)):
        assert worst(got, [torch.stack(x) for x in zip(*alone, strict=True)]) < 1e-13
    of_y = torch.autograd.grad(outputs[0], leaves[0], weights[0], retain_graph=True, is_grads_batched=True)[0]
    assert worst([of_y[0]], torch.autograd.grad(outputs[0], leaves[:1], weights[0][0])) < 1e-13


@pytest.mark.one_build
@each
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_traced_call_equals_an_eager_call(operation: str, backend: str, variant: int) -> None:
    """Outputs and gradients, of a trace whose inputs required no gradient."""
    case = make(operation, 16, length=70, variant=variant)
    function = case.function(backend)
    traced = torch.jit.trace(function, tuple(torch.zeros_like(x) for x in case.values), check_trace=False)
    leaves = [x.requires_grad_() for x in case.values]
    got, expected = traced(*leaves), function(*leaves)
    assert same_bits(list(got), list(expected))
    gradients, alone = (torch.autograd.grad(sum(x.abs().sum() for x in found), leaves) for found in (got, expected))
    assert same_bits(list(gradients), list(alone))


@pytest.mark.one_build
@first
def test_registration_of_the_custom_operators(operation: str, backend: str, variant: int) -> None:
    """PyTorch's own check of schema, fake tensors and autograd registration."""
    check_operators(operation, backend, variant, ("test_schema", "test_autograd_registration", "test_faketensor"))


@pytest.mark.one_build
@pytest.mark.parametrize(ROW, [*TRACED, *exhaustive(*(case for case in ALL if case not in TRACED))])
def test_the_custom_operators_can_be_traced_with_any_sizes(operation: str, backend: str, variant: int) -> None:
    check_operators(operation, backend, variant, ("test_aot_dispatch_dynamic",))


def check_operators(operation: str, backend: str, variant: int, checks: tuple[str, ...]) -> None:
    case = make(operation, 11, length=13, batch=2, variant=variant, resets=0.2).to(torch.float32)
    forward, gradient = (getattr(torch.ops.ssm_kernels, operation + end) for end in ("", "_backward"))

    with Recording() as recording:
        y, state = case.function(backend)(*(x.requires_grad_() for x in case.values))
        (y.abs().sum() + state.abs().sum()).backward()
    composite = hasattr(backends.module(operation, backend), "run")
    assert [func for func, _ in recording.calls] == ([] if composite else [forward.default, gradient.default])
    for func, args in recording.calls:
        differentiable = func is forward.default  # the backward pass has no derivative
        detached = tuple(
            x.detach().requires_grad_(differentiable and x.requires_grad) if isinstance(x, Tensor) else x for x in args
        )
        torch.library.opcheck(func, detached, test_utils=checks)
