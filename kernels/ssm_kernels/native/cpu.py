"""What this processor can do, which of it the C++ is compiled for, and the compiler's flags for that."""

from __future__ import annotations

import os
import platform
from difflib import get_close_matches
from functools import cache
from pathlib import Path

# Instruction sets by name, best first: the processor's features that each needs (as in /proc/cpuinfo), and its flags.
FEATURES: dict[str, tuple[str, ...]] = {
    "avx512": ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx2", "fma"),
    "avx2": ("avx2", "fma"),
    "plain": (),
}
VARIABLE = "SSM_KERNELS_INSTRUCTIONS"  # of the environment: one of these names


class InstructionsError(ValueError):
    """An instruction set that does not exist, or that this processor lacks."""


@cache
def description() -> tuple[str, frozenset[str]]:
    """The processor's name and its features; no features where the system does not list them."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    name = " ".join(fields.get(field, "") for field in ("vendor_id", "cpu family", "model", "model name"))
    return f"{platform.machine()} {name}", frozenset(fields.get("flags", "").split())


@cache
def instruction_sets() -> tuple[str, ...]:
    """Those that this processor has, best first; "plain", which needs nothing, is always the last."""
    present = description()[1]
    return tuple(name for name, needed in FEATURES.items() if present.issuperset(needed))


def instructions() -> str:
    """What the C++ is compiled for: the set that $SSM_KERNELS_INSTRUCTIONS names, or the best that this processor has.

    Raises:
        InstructionsError: see `checked`.
    """
    return checked(os.environ.get(VARIABLE) or instruction_sets()[0], VARIABLE)


def checked(name: str, where: str) -> str:
    """The name, if this processor has the instruction set.

    Args:
        where: who gave it, for the message.

    Raises:
        InstructionsError: unknown, or not there; one line with the nearest that is.
    """
    if name not in FEATURES:
        near = get_close_matches(name.lower().replace("-", ""), FEATURES, 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise InstructionsError(f"{where}: unknown instruction set {name[:40]!r}, expected {', '.join(FEATURES)}{hint}")
    if name not in instruction_sets():
        raise InstructionsError(
            f"{where}: this processor has no {name}; the best that it has is {instruction_sets()[0]}"
        )
    return name


def flags(name: str) -> list[str]:
    """The compiler's options for an instruction set; the best one of an x86 is also tuned to this very processor."""
    chosen = [f"-m{feature}" for feature in FEATURES[name]]
    if name != "plain":
        chosen.append(f"-DSIMD_{name.upper()}")
        if name == instruction_sets()[0]:
            chosen.append("-march=native")
    return chosen
