"""Stage kernels: every kernel of the backends triton and cuda equals the float64 oracle on the device.

A task is one operation in one backend and one check. A check compares outputs, final states and the gradients of all
inputs. Most checks cover all forms of the operation. Where compilation takes long, a task has one form or one size.
The backend torch is checked too: in float64, it is the oracle of the stage speed, where the step-by-step reference
would take too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ssm_kernels import backends
from ssm_kernels.benchmarks.on_gpu.task import Setting, TaskError, TaskSkippedError
from ssm_kernels.testing.cases import EVERY, NORM, Case, make, variants
from ssm_kernels.testing.numerics import error, same_bits, with_gradients

BACKENDS = ("triton", "cuda", "torch")
# B, T, width, state: odd sizes, multiples of a tile, and sizes around them.
ODD = ((1, 1, 2, 1), (2, 45, 3, 5), (2, 33, 67, 17), (1, 300, 2, 4), (3, 17, 50, 27), (2, 131, 16, 7))
# width and state of published models: Mamba, Mamba-2, GLA and Gated DeltaNet, the convolution.
LAYERS = {"selective_scan": (512, 16), "causal_conv1d": (512, 4), "diagonal_scan": (512, 1), NORM: (512, 1)}
MATRIX = (128, 128)  # V and K
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
    """The largest errors, by form.

    Raises:
        TaskError: an error is above its limit.
        TaskSkippedError: the backend cannot run here.
    """
    check, operation, backend, *form = name.split(", ")
    missing = backends.unavailable(operation, backend, torch.device(setting.device))
    if missing is not None:
        raise TaskSkippedError(missing)
    forms = [int(form[0].removeprefix("form "))] if form else _forms(setting, check, operation)
    errors = dict(CHECKS[check](setting, operation, backend, forms))
    return {"errors": errors, "says": f"largest error {max(errors.values()):.1e}"}


Errors = Iterator[tuple[str, float]]  # description of the case, its largest error
Forms = Sequence[int]  # numbers of the operation's forms, as in `variants`


def usual(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """Decays of all kinds, with resets and an initial state, in float32."""
    for case, about in _cases(setting, operation, forms, (2, 130, 48, 20), decay="mixed", resets=0.1):
        yield _compared(case.to(torch.float32), backend, about, 1e-5)


def layers(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """Sizes of published models, with the tiles that these have, in float32."""
    for case, about in _cases(setting, operation, forms, (2, 256, *LAYERS.get(operation, MATRIX)), resets=0.01):
        yield _compared(case.to(torch.float32), backend, about, 1e-5)


def bfloat16(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """The same sizes in bfloat16. Final states are in float32, except for the norm."""
    for case, about in _cases(setting, operation, forms, (2, 256, *LAYERS.get(operation, MATRIX)), resets=0.01):
        state = 4e-3 if operation == NORM else 1e-5
        yield _compared(case.to(torch.bfloat16), backend, about, 1e-2, state)


def long(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """A long sequence with few channels, which the kernels cut into segments, in float32."""
    for case, about in _cases(setting, operation, forms[:2], (1, 4096, 16, 4)):
        yield _compared(case.to(torch.float32), backend, about, 2e-5)


def odd(number: int, setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """One of the odd sizes, in float32; every second one without a state and resets."""
    plain = number % 2 == 0
    more = {"start": not plain, "resets": 0.0 if plain else 0.1, "seed": number}
    for case, about in _cases(setting, operation, forms[:1], ODD[number], **more):
        yield _compared(case.to(torch.float32), backend, about, 1e-5)


def pieces(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """A sequence cut into three, with the state passed on, equals the whole."""
    for case, about in _cases(setting, operation, forms[:2], (2, 130, 48, 20), resets=0.05):
        single = case.to(torch.float32)
        cut = single if operation == NORM else single.in_pieces(backend, (7, 70))
        function = cut.function(backend) if isinstance(cut, Case) else cut
        yield about, _checked(with_gradients(function, single.values, 0), _exact(single), about, 1e-5)


def equal_bits(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """Two equal calls give equal bits."""
    for case, about in _cases(setting, operation, forms, (2, 200, 48, 20), resets=0.05):
        single = case.to(torch.float32)
        first, second = (_results(single, backend) for _ in range(2))
        if not same_bits(first, second):
            raise TaskError(f"{about}: two equal calls give different bits")
        yield about, 0.0


def float64(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """Everything in float64."""
    for case, about in _cases(setting, operation, forms, (2, 130, 20, 9), decay="mixed", resets=0.1):
        yield _compared(case, backend, about, 1e-11)


def sanitized(setting: Setting, operation: str, backend: str, forms: Forms) -> Errors:
    """One small case in float32 and in bfloat16, for the stage sanitizer."""
    for case, about in _cases(setting, operation, forms[:1], (2, 70, 20, 20), resets=0.1):
        yield _compared(case.to(torch.float32), backend, f"{about}, float32", 1e-5)
        if not any(x.is_complex() for x in case.values):
            yield _compared(case.to(torch.bfloat16), backend, f"{about}, bfloat16", 1e-2, 1e-2)


Check = Callable[[Setting, str, str, Forms], Errors]
CHECKS: dict[str, Check] = {
    "layers": layers,
    "bfloat16": bfloat16,
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
    forms = [form for form in variants(operation) if check != "bfloat16" or _real(operation, form)]
    return forms[: 1 if setting.rehearse else None]


def _real(operation: str, form: int) -> bool:
    return not any(x.is_complex() for x in make(operation, variant=form, length=1).values)


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


def _compared(
    case: Case, backend: str, about: str, limit: float, state_limit: float | None = None
) -> tuple[str, float]:
    return about, _checked(_results(case, backend), _exact(case), about, limit, state_limit)


def _results(case: Case, backend: str) -> list[Tensor]:
    """Outputs and gradients. Fresh memory is NaN, so that what a kernel does not write is seen."""
    with _memory_of_nans():
        return with_gradients(case.function(backend), case.values, 0)


def _exact(case: Case) -> list[Tensor]:
    wide = case.to(torch.float64)
    return with_gradients(wide.function("reference"), wide.values, 0)


def _checked(
    found: list[Tensor], exact: list[Tensor], about: str, limit: float, state_limit: float | None = None
) -> float:
    """The largest error.

    Raises:
        TaskError: one is above its limit.
    """
    errors = [error(a, b) for a, b in zip(found, exact, strict=True)]
    for place, value in enumerate(errors):
        what = ("y", "the final state")[place] if place < 2 else f"gradient {place - 1}"
        allowed = state_limit if place == 1 and state_limit is not None else limit
        if not value <= allowed:
            raise TaskError(f"{about}: the relative error of {what} is {value:.2g}, above {allowed:g}")
    return max(errors)


@contextmanager
def _memory_of_nans() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    # torch's types do not know it; it is on by default
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
