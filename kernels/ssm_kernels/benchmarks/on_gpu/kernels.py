"""Stage kernels: every kernel of the backends triton and cuda equals the float64 oracle on the device.

A task is one operation in one backend and one check. A check compares outputs, final states and the gradients of all
inputs. Most checks cover all forms of the operation. Where compilation takes long, a task has one form or one size.
The backend torch is checked too: in float64, it is the oracle of the stage speed, where the step-by-step reference
would take too long.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ssm_kernels import backends
from ssm_kernels.benchmarks.on_gpu.task import Setting, TaskError, cannot_run
from ssm_kernels.benchmarks.scans import first_line
from ssm_kernels.testing.cases import EVERY, NORM, Case, Function, make, variants
from ssm_kernels.testing.numerics import error, largest_error, same_bits, with_gradients
from ssm_kernels.timing import wait

BACKENDS = ("triton", "cuda", "torch")
# B, T, width, state: odd sizes, multiples of a tile, and sizes around them.
ODD = ((1, 1, 2, 1), (2, 45, 3, 5), (2, 33, 67, 17), (1, 300, 2, 4), (3, 17, 50, 27), (2, 131, 16, 7))
# width and state of published models: Mamba, Mamba-2, GLA and Gated DeltaNet, the convolution.
LAYERS = {"selective_scan": (512, 16), "causal_conv1d": (512, 4), "diagonal_scan": (512, 1), NORM: (512, 1)}
MATRIX = (128, 128)  # V and K
# Largest relative error, by norm. One wrong element of many is small in a norm, so it has a limit of its own.
LIMITS = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 4e-3, torch.float16: 5e-4}
# Factors of all limits. An exponential of a GPU may be off by 2e-7, in one direction at similar decays. Then errors add
# up over the steps: 4e-8 too little gives an error of 3e-5 in the gradient of A of a selective scan after 4,096 steps,
# and 4e-6 after 256. Scans in chunks take one exponential for many steps. For them it is at most 1e-6.
LONG_SLACK = 2.0
SELECTIVE_SLACK, LONG_SELECTIVE_SLACK = 3.0, 10.0
ONE_ELEMENT = 4.0  # times the limit: the largest difference of an element, relative to the largest element
HALF = (torch.bfloat16, torch.float16)
HALF_CHUNK = 64  # tokens of a chunk in half precision; a sequence that is no longer has one chunk
CALLS = 10  # that must have equal bits
SANITIZED = "sanitized"
SMALL = (1, 9, 5, 3)  # a rehearsal's sizes


def names(setting: Setting) -> list[str]:
    torch.zeros(1, device=setting.device)  # a worker that cannot use the device ends here, and takes no task
    return [
        f"{check}, {operation}, {backend}{form}"
        for check in CHECKS
        if check != SANITIZED
        for backend in BACKENDS
        for operation in EVERY
        if backend in backends.available(operation)
        and (backend != "torch" or check in OF_TORCH)
        and (backend != "cuda" or check != "float64")  # it computes in float32
        for form in ([f", form {x}" for x in _forms(setting, check, operation)] if check in BY_FORM else [""])
    ]


def run(setting: Setting, name: str) -> dict[str, Any]:
    """All errors, by form. A form that fails does not hide the others.

    Raises:
        TaskError: an error is above its limit, or a form or the backend cannot run.
        TaskSkippedError: the backend cannot be rehearsed here.
    """
    check, operation, backend, *form = name.split(", ")
    missing = backends.unavailable(operation, backend, torch.device(setting.device))
    if missing is not None:
        raise cannot_run(setting, missing)
    forms = [int(form[0].removeprefix("form "))] if form else _forms(setting, check, operation)
    errors: dict[str, list[Error]] = {}
    failures: list[str] = []
    for about, compare in CHECKS[check](setting, operation, backend, forms):
        try:
            errors[about] = compare()
        except Exception as problem:  # it cannot be compiled or started; other forms may
            traceback.print_exc()
            failures.append(f"{about}: {type(problem).__name__}: {first_line(problem)}")
            if _lost(setting):
                break
            continue
        failures += [f"{about}: {x.what} is {x.value:.2g}, above {x.limit:g}" for x in errors[about] if x.above]
    found = {"errors": {about: {x.what: (x.value, x.limit) for x in each} for about, each in errors.items()}}
    if failures:
        raise TaskError("; ".join(failures), found | {"failures": failures})
    return found | {"says": f"largest error {max(x.value for each in errors.values() for x in each):.1e}"}


class Error(NamedTuple):
    """A measured error."""

    what: str
    value: float
    limit: float

    @property
    def above(self) -> bool:
        return not self.value <= self.limit  # NaN is


Errors = Iterator[tuple[str, Callable[[], list[Error]]]]  # description of the case, the function that measures it
Forms = Sequence[int]  # numbers of the operation's forms, as in `variants`


def usual(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """Decays of all kinds, with resets and an initial state, in float32."""
    for case, about in _cases(setting, operation, forms, (2, 130, 48, 20), decay="mixed", resets=0.1):
        yield _comparison(setting, case, torch.float32, backend, about, _slack(operation))


def layers(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """Sizes of published models, with the tiles that these have, in float32."""
    for case, about in _cases(setting, operation, forms, _of_layers(operation), resets=0.01):
        yield _comparison(setting, case, torch.float32, backend, about, _slack(operation))


def bfloat16(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """The same sizes in bfloat16."""
    for case, about in _cases(setting, operation, forms, _of_layers(operation), resets=0.01):
        yield _comparison(setting, case, torch.bfloat16, backend, about, _slack(operation))


def float16(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """One form in float16. The last chunk of the sequence has few tokens."""
    for case, about in _cases(setting, operation, forms[:1], (2, 130, 48, 20), resets=0.1):
        yield _comparison(setting, case, torch.float16, backend, about)


def long(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """A long sequence with few channels, which the kernels cut into segments."""
    slack = LONG_SELECTIVE_SLACK if operation == "selective_scan" else LONG_SLACK
    for case, about in _cases(setting, operation, forms[:2], (1, 4096, 16, 4)):
        for dtype in _dtypes(case):
            yield _comparison(setting, case, dtype, backend, about, slack)


def odd(number: int, setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """One of the odd sizes; every second one without a state and resets."""
    plain, several = number % 2 == 0, ODD[number][1] > HALF_CHUNK
    more = {"start": not plain, "resets": 0.0 if plain else 0.1, "seed": number}
    for case, about in _cases(setting, operation, forms[:1], ODD[number], **more):
        for dtype in _dtypes(case)[: 2 if several else 1]:
            yield _comparison(setting, case, dtype, backend, about)


def pieces(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """A sequence cut into three, with the state passed on, equals the whole. The second piece has several chunks."""
    for case, about in _cases(setting, operation, forms[:2], (2, 130, 48, 20), resets=0.05):
        for dtype in _dtypes(case):
            yield _comparison(setting, case, dtype, backend, about, cuts=() if operation == NORM else (7, 80))


def equal_bits(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """Equal calls give equal bits, at the sizes of published models."""
    for case, about in _cases(setting, operation, forms, _of_layers(operation), resets=0.01):
        for dtype in _dtypes(case):
            yield f"{about}, {_name(dtype)}", partial(_other_bits, setting, case.to(dtype), backend)


def float64(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """Everything in float64."""
    for case, about in _cases(setting, operation, forms, (2, 130, 20, 9), decay="mixed", resets=0.1):
        yield _comparison(setting, case, torch.float64, backend, about)


def sanitized(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """One small case, for the stage sanitizer."""
    for case, about in _cases(setting, operation, forms[:1], (2, 70, 20, 20), resets=0.1):
        for dtype in _dtypes(case):
            yield _comparison(setting, case, dtype, backend, about)


Check = Callable[[Setting, str, str, Forms], Errors]
CHECKS: dict[str, Check] = {
    "layers": layers,
    "bfloat16": bfloat16,
    "float16": float16,
    "usual": usual,
    "long": long,
    **{f"odd sizes {'x'.join(map(str, sizes))}": partial(odd, number) for number, sizes in enumerate(ODD)},
    "equal bits": equal_bits,
    "pieces": pieces,
    "float64": float64,
    SANITIZED: sanitized,
}
OF_TORCH = ("usual", "float64")
BY_FORM = ("layers", "bfloat16")  # the largest tiles


def _forms(setting: Setting, check: str, operation: str) -> Forms:
    """The forms that a check covers. A rehearsal has one."""
    forms = [
        form for form in variants(operation) if check != "bfloat16" or _real(make(operation, variant=form, length=1))
    ]
    return forms[: 1 if setting.rehearse else None]


def _real(case: Case) -> bool:
    return not any(x.is_complex() for x in case.values)


def _cases(
    setting: Setting, operation: str, forms: Forms, sizes: tuple[int, int, int, int], **more: Any
) -> Iterator[tuple[Case, str]]:
    """A case of every form, on the device, and its name. A rehearsal has small cases."""
    batch, length, width, state = SMALL if setting.rehearse else sizes
    if operation == "causal_conv1d":
        state = min(state, 4)
    for variant in forms:
        case = make(operation, variant=variant, batch=batch, length=length, width=width, state=state, **more)
        yield case.on(setting.device), f"form {variant}"


def _of_layers(operation: str) -> tuple[int, int, int, int]:
    return (2, 256, *LAYERS.get(operation, MATRIX))


def _slack(operation: str) -> float:
    return SELECTIVE_SLACK if operation == "selective_scan" else 1.0


def _dtypes(case: Case) -> list[torch.dtype]:
    """The precisions of models. A complex form has one."""
    return [torch.float32, torch.bfloat16] if _real(case) else [torch.float32]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _comparison(
    setting: Setting, case: Case, dtype: torch.dtype, backend: str, about: str, slack: float = 1.0,
    cuts: Sequence[int] = (),
) -> tuple[str, Callable[[], list[Error]]]:  # fmt: skip
    """The comparison of a case in one precision with the oracle. Final states are in float32, except for the norm.

    Args:
        slack: factor of all limits.
        cuts: the first steps of the pieces into which the sequence is cut.
    """
    y = gradient = state = slack * LIMITS[dtype]
    if dtype in HALF:
        y *= 2.0 if setting.rehearse else 1.0  # Triton's interpreter does not round to bfloat16, but cuts off digits
        gradient = 2.5 * y  # one with few elements can be rounded by more than the usual error
        state = y if case.operation == NORM else slack * LIMITS[torch.float32]
    limits = (y, state, gradient)
    return f"{about}, {_name(dtype)}", partial(_compared, case.to(dtype), backend, limits, cuts)


def _compared(case: Case, backend: str, limits: tuple[float, float, float], cuts: Sequence[int] = ()) -> list[Error]:
    found = _results(case, case.in_pieces(backend, cuts) if cuts else case.function(backend))
    return _errors(found, _exact(case, found[0].dtype), limits)


def _other_bits(setting: Setting, case: Case, backend: str) -> list[Error]:
    first, *others = (_results(case, case.function(backend)) for _ in range(2 if setting.rehearse else CALLS))
    return [Error("the number of equal calls with other bits", sum(not same_bits(first, x) for x in others), 0)]


def _results(case: Case, function: Function) -> list[Tensor]:
    """Outputs and gradients. Fresh memory is NaN, so that what a kernel does not write is seen."""
    with _memory_of_nans():
        return with_gradients(function, case.values, 0)


def _exact(case: Case, dtype: torch.dtype) -> list[Tensor]:
    """Outputs and gradients in float64, for a gradient of y that is rounded to `dtype`, as that of the kernel is."""
    wide = case.to(torch.float64)

    def function(*values: Tensor) -> tuple[Tensor, Tensor]:
        y, state = wide.function("reference")(*values)
        y.register_hook(lambda dy: dy.to(dtype).to(dy.dtype))  # sums of it can cancel
        return y, state

    return with_gradients(function, wide.values, 0)


def _errors(found: list[Tensor], exact: list[Tensor], limits: tuple[float, float, float]) -> list[Error]:
    """Two errors of each tensor.

    Args:
        limits: of y, the final state and the gradients.
    """
    errors = []
    for place, (a, b) in enumerate(zip(found, exact, strict=True)):
        what = ("y", "the final state")[place] if place < 2 else f"gradient {place - 1}"
        limit = limits[min(place, 2)]
        errors.append(Error(f"the relative error of {what}", error(a, b), limit))
        errors.append(
            Error(f"the largest error of {what}, by its largest element,", largest_error(a, b), ONE_ELEMENT * limit)
        )
    return errors


def _lost(setting: Setting) -> bool:
    """Whether an error broke the CUDA context, so that every later call would fail."""
    try:
        wait(torch.device(setting.device))
    except RuntimeError:
        return True
    return False


@contextmanager
def _memory_of_nans() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    # torch's types do not know it; it is on by default
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
