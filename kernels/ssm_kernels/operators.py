"""One differentiable torch operator for each operation, made from the forward and backward functions of its backends.

An operation has two NamedTuples: `Inputs` (tensors, some of them optional) and `Options` (bool, int, float, str).
The module of a backend has one of two forms. Either autograd differentiates it:

    run(inputs, options) -> (y, state)

or it has its own backward pass:

    forward(inputs, options, save) -> (y, state, saved)
    backward(dy, dstate, saved, y, inputs, options) -> gradients     one per field of Inputs; None: no gradient
    saved_shape(inputs, options) -> tuple[int, ...]                  shape of `saved`. Without it, nothing is saved

The second form is registered with torch.library, as ssm_kernels::<operation> and ssm_kernels::<operation>_backward.
Calls go through these operators if something inspects operators: torch.compile, torch.jit.trace, a dispatch mode (fake
tensors, FLOP counters), torch.func.vmap or a Tensor subclass. These see shapes only. All other calls run the same
functions directly, which is faster. Autocast has no effect on either path. There are first derivatives only, and none
of torch.func (grad, vjp, jvp): these raise an error.

A module may also define `unavailable(device)`, which returns None or the reason why the backend cannot run on a device.
Without it, the backend runs on any device. It may define `unsuited(inputs)`: see `backends`. If the loss does not
depend on the final state, `dstate` is zeros. A module with ZERO_DSTATE_IS_NONE = True gets None instead, and its
backward skips the terms with `dstate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, get_type_hints

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ssm_kernels import backends
from ssm_kernels.checks import Shape
from ssm_kernels.dtypes import cast, compute_dtype, differentiable, upcast_inputs

Observer = Callable[[str, Any, Any], None]

_observers: list[Observer] = []


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Call `observer(operation name, Inputs, Options)` before every call of an operation inside this block."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


NO_CHANGE = nullcontext()
PLAIN = (Tensor, torch.nn.Parameter)  # without the subclasses that tracing and sharding make


class Outputs(NamedTuple):
    """Shapes of an operation's outputs, and the dtype of y. The state has the compute dtype."""

    y: Shape
    state: Shape
    y_dtype: torch.dtype


class BackendFunctions:
    """The functions of a backend's module, looked up at its first use."""

    run: Any = None
    unsuited: Any = None
    forms: tuple[bool, bool] | None = None
    zero_dstate_is_none: bool = False


class Operator:
    """An operation and its backends."""

    def __init__(
        self,
        name: str,
        inputs: type,
        options: type,
        outputs: Callable[[Any], Outputs],
        backends: tuple[str, ...],
        keep_output: bool = False,
        start: str | None = "h0",
    ):
        """
        Args:
            name: name of the operation's folder.
            inputs, options: the operation's NamedTuples. The first input is never None.
            outputs: a function of the inputs that returns the shapes of the outputs.
            backends: names of the backends that implement the operation.
            keep_output: whether the backward pass needs y (in the compute dtype).
            start: the input that is the initial state; None: the operation has no state.
        """
        self.name, self.inputs, self.options, self.outputs = name, inputs, options, outputs
        self.backends, self.keep_output, self.start = backends, keep_output, start
        self._tensors: int = len(get_type_hints(inputs))
        self._functions = {name: BackendFunctions() for name in backends}
        self._register()

    def __call__(self, inputs: Any, options: Any, backend: str) -> tuple[Tensor, Tensor]:
        """Compute (y, state) with `backend`.

        Raises:
            BackendError: see `backends.choose`.
            RuntimeError: an input has a forward-mode tangent, or torch.func differentiates it, and the backend has its
                own backward pass.
        """
        for observer in _observers:
            observer(self.name, inputs, options)
        present = [x for x in inputs if x is not None]
        name, composite = self._choose(inputs, backend, present[0].device)
        shapes = self.outputs(inputs)
        if self.start is not None and 0 in shapes.y:
            return _of_nothing(inputs, getattr(inputs, self.start), shapes)
        if composite:
            with _full_precision(present[0]):
                y, state = self._functions[name].run(upcast_inputs(inputs), options)
            return y.to(shapes.y_dtype), state
        if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(x).tangent is not None for x in present):
            raise RuntimeError(_has_no("forward-mode derivatives", self.name, name))
        save = torch.is_grad_enabled() and any(x.requires_grad for x in present)
        if needs_dispatcher(present):
            if not torch.compiler.is_compiling() and any(map(_differentiated_by_func, present)):
                raise RuntimeError(_has_no("gradients of torch.func", self.name, name))
            y, state, _ = self._forward(*inputs, name, save, *options)
        elif save:
            y, state = Direct.apply(Call(self, name, options), *inputs)
        else:
            y, state, _ = self._computed(inputs, name, save, options)
        return y, state

    def _choose(self, inputs: Any, backend: str, device: torch.device) -> tuple[str, bool]:
        """Name of the backend for these inputs, and whether autograd differentiates it."""
        skipped: tuple[tuple[str, str], ...] = ()
        while True:
            name = backends.choose(self.name, self.backends, backend, device, skipped)
            composite, has_unsuited = self._forms(name)
            reason = self._functions[name].unsuited(inputs) if has_unsuited else None
            if reason is None:
                return name, composite
            skipped = (*skipped, (name, reason))

    @backends.constant_when_compiled  # torch.compile must not trace the import
    def _forms(self, name: str) -> tuple[bool, bool]:
        """Whether a backend has `run`, and whether it has `unsuited`."""
        functions = self._functions[name]
        if functions.forms is None:
            module = backends.module(self.name, name)
            functions.run, functions.unsuited = getattr(module, "run", None), getattr(module, "unsuited", None)
            functions.zero_dstate_is_none = getattr(module, "ZERO_DSTATE_IS_NONE", False)
            functions.forms = (functions.run is not None, functions.unsuited is not None)
        return functions.forms

    def _register(self) -> None:
        tensors = ", ".join(f"{kind} {name}" for name, kind in _schema(self.inputs))
        options = "".join(f", {kind} {name}" for name, kind in _schema(self.options))
        grads = "Tensor dy, Tensor dstate, Tensor saved, Tensor? y"
        # torch.library fixes this order of the forward's outputs: y, the final state, and the tensor for backward.
        self._forward = torch.library.custom_op(
            f"ssm_kernels::{self.name}",
            self._run_forward,
            mutates_args=(),
            schema=f"({tensors}, str backend, bool save{options}) -> (Tensor, Tensor, Tensor)",
        )
        self._backward = torch.library.custom_op(
            f"ssm_kernels::{self.name}_backward",
            self._run_backward,
            mutates_args=(),
            # Not Tensor[], of which torch.vmap has no fallback.
            schema=f"({grads}, {tensors}, str backend{options}) -> ({', '.join(['Tensor'] * self._tensors)})",
        )
        self._forward.register_fake(self._fake_forward)
        self._backward.register_fake(self._fake_backward)
        self._forward.register_autograd(self._differentiate, setup_context=self._setup)

    def _computed(self, inputs: Any, name: str, save: bool, options: Any) -> tuple[Tensor, Tensor, Tensor]:
        """y, the final state and the tensor for backward, from a backend with its own backward pass."""
        inputs = self.inputs(*_resolved(inputs))
        with _full_precision(inputs[0]):
            y, state, saved = backends.module(self.name, name).forward(inputs, options, save)
        return y, state, saved

    def _gradients(
        self, dy: Tensor, dstate: Tensor | None, saved: Tensor, y: Tensor | None, inputs: Any, name: str, options: Any
    ) -> list[Tensor | None]:
        dy, dstate, y, *tensors = _resolved((dy, dstate, y, *inputs))
        inputs = self.inputs(*tensors)
        with _full_precision(dy):
            gradients = backends.module(self.name, name).backward(dy, dstate, saved, y, inputs, options)
        return [
            None if gradient is None or x is None else cast(gradient, x.dtype)
            for x, gradient in zip(inputs, gradients, strict=True)
        ]

    def _run_forward(self, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        inputs, (name, save, *rest) = args[: self._tensors], args[self._tensors :]
        return self._computed(inputs, name, save, self.options(*rest))

    def _run_backward(
        self, dy: Tensor, dstate: Tensor | None, saved: Tensor, y: Tensor | None, *args: Any
    ) -> tuple[Tensor, ...]:
        """The gradients, with empty tensors in place of None, which an operator cannot return."""
        inputs, (name, *rest) = args[: self._tensors], args[self._tensors :]
        gradients = self._gradients(dy, dstate, saved, y, inputs, name, self.options(*rest))
        return tuple(dy.new_empty(0) if gradient is None else gradient for gradient in gradients)

    def _fake_forward(self, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        inputs, (name, save, *rest) = self.inputs(*args[: self._tensors]), args[self._tensors :]
        options = self.options(*rest)
        like = inputs[0]
        shapes, dtype = self.outputs(inputs), compute_dtype(*inputs)
        saved_shape = getattr(backends.module(self.name, name), "saved_shape", None)
        saved = saved_shape(inputs, options) if save and saved_shape is not None else (0,)
        return (
            like.new_empty(shapes.y, dtype=shapes.y_dtype),
            like.new_empty(shapes.state, dtype=dtype),
            like.new_empty(saved, dtype=dtype),
        )

    def _fake_backward(
        self, dy: Tensor, dstate: Tensor, saved: Tensor, y: Tensor | None, *args: Any
    ) -> tuple[Tensor, ...]:
        return tuple(
            dy.new_empty(0) if x is None or not differentiable(x) else x.new_empty(x.shape)
            for x in args[: self._tensors]
        )

    def _setup(self, ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        tensors, (name, ctx.saves, *rest) = inputs[: self._tensors], inputs[self._tensors :]
        self._save_for_backward(ctx, tensors, name, self.options(*rest), output)

    def _save_for_backward(
        self, ctx: Any, inputs: Any, name: str, options: Any, output: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        """Store the arguments of the backward pass."""
        y, _, saved = output
        ctx.save_for_backward(saved, y if self.keep_output else None, *inputs)
        ctx.backend, ctx.options = name, options
        ctx.set_materialize_grads(False)

    def _saved_for_backward(
        self, ctx: Any, dy: Tensor | None, dstate: Tensor | None, none_is_zero: bool
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None, list[Tensor | None]]:
        """dy, dstate, saved, y and the inputs. `none_is_zero`: dstate may stay None."""
        saved, y, *inputs = ctx.saved_tensors
        if dy is None or (dstate is None and not none_is_zero):
            shapes = self.outputs(self.inputs(*inputs))
            dy = saved.new_zeros(shapes.y, dtype=shapes.y_dtype) if dy is None else dy
            if dstate is None and not none_is_zero:
                dstate = saved.new_zeros(shapes.state, dtype=compute_dtype(*inputs))
        return dy, dstate, saved, y, inputs

    def _differentiate(self, ctx: Any, dy: Tensor | None, dstate: Tensor | None, _: Tensor | None) -> Any:
        dy, dstate, saved, y, inputs = self._saved_for_backward(ctx, dy, dstate, none_is_zero=False)
        if not ctx.saves:  # the caller saw no input that requires a gradient: vmap hides it, a trace may come before it
            *_, saved = self._forward(*inputs, ctx.backend, True, *ctx.options)
        gradients = self._backward(dy, dstate, saved, y, *inputs, ctx.backend, *ctx.options)
        known = (
            gradient if x is not None and differentiable(x) else None
            for x, gradient in zip(inputs, gradients, strict=True)
        )
        return *known, None, None, *(None for _ in ctx.options)


def _of_nothing(inputs: Any, start: Tensor | None, shapes: Outputs) -> tuple[Tensor, Tensor]:
    """The outputs for no tokens, sequences or channels, of all backends: y is empty, and the state stays."""
    # A zero that depends on every input. So the gradients of all but the initial state are zero.
    zero: Any = sum(x.flatten()[:0].sum() for x in inputs if x is not None and differentiable(x))
    dtype = compute_dtype(*inputs)
    state = zero.new_zeros(shapes.state, dtype=dtype) if start is None else start.to(dtype)
    return (zero.new_empty(shapes.y) + zero).to(shapes.y_dtype), state + zero.to(dtype)


def needs_dispatcher(tensors: list[Tensor]) -> bool:
    """Whether something inspects operators; see the module's docstring."""
    return (
        torch.compiler.is_compiling()
        or _get_current_dispatch_mode() is not None
        or torch._C._are_functorch_transforms_active()
        or torch.jit.is_tracing()
        or not all(type(x) in PLAIN for x in tensors)
    )


def _differentiated_by_func(x: Tensor) -> bool:
    """Whether torch.func.grad or vjp differentiates a tensor, perhaps below vmap."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_gradtrackingtensor(x) and x.requires_grad:
            return True
        x = functorch.get_unwrapped(x)
    return False


def _resolved(tensors: tuple[Tensor | None, ...]) -> tuple[Any, ...]:
    """The tensors with their values in memory. Lazily conjugated or negated views are resolved."""
    for x in tensors:
        if x is not None and (x.is_conj() or x.is_neg()):
            return tuple(None if x is None else x.resolve_conj().resolve_neg() for x in tensors)
    return tensors


def _has_no(what: str, operation: str, backend: str) -> str:
    return f"{operation}: backend '{backend}' has no {what}; backend 'reference' has them"


class Call(NamedTuple):
    """A call of an operator: all but its tensors."""

    operator: Operator
    backend: str
    options: Any


class Direct(torch.autograd.Function):
    """Forward and backward without torch's dispatcher, which takes 5% of a small model's training step."""

    @staticmethod
    def forward(ctx: Any, call: Call, *inputs: Tensor | None) -> tuple[Tensor, Tensor]:
        operator, name, options = call
        output = operator._computed(inputs, name, True, options)
        operator._save_for_backward(ctx, inputs, name, options, output)
        ctx.operator = operator
        return output[:2]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        operator, name = ctx.operator, ctx.backend
        if not all(torch._C._has_storage(x) for x in grads if x is not None):  # as in vmap over the backward pass
            ctx.saves = True
            return None, *operator._differentiate(ctx, *grads, None)[: operator._tensors]
        *given, inputs = operator._saved_for_backward(
            ctx, *grads, none_is_zero=operator._functions[name].zero_dstate_is_none
        )
        if not torch.is_grad_enabled():
            return None, *operator._gradients(*given, inputs, name, ctx.options)
        with torch.no_grad():
            gradients = operator._gradients(*given, inputs, name, ctx.options)
        # create_graph=True: the gradients depend on all these tensors. Differentiating them again raises an error.
        message = _has_no("second derivatives", operator.name, name)
        sources = [x for x in (*given, *inputs) if x is not None]
        known = iter(
            _FirstDerivativesOnly.apply(message, len(sources), *sources, *(x for x in gradients if x is not None))
        )
        return None, *(None if x is None else next(known) for x in gradients)


class _FirstDerivativesOnly(torch.autograd.Function):
    """Return gradients unchanged. Differentiating them raises an error."""

    @staticmethod
    def forward(ctx: Any, message: str, sources: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.message = message
        return tuple(x.view_as(x) for x in tensors[sources:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        raise RuntimeError(ctx.message)


def _full_precision(x: Tensor) -> AbstractContextManager[Any]:
    """Disable autocast on the device of x: it would compute matrix products in half precision."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else NO_CHANGE


def _schema(fields: type) -> list[tuple[str, str]]:
    """(name, torch schema type) of every field of a NamedTuple."""
    words = {Tensor: "Tensor", Tensor | None: "Tensor?", bool: "bool", int: "int", float: "float", str: "str"}
    return [(name, words[kind]) for name, kind in get_type_hints(fields).items()]
