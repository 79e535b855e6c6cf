"""Instruction sets of this processor, the one that the C++ is compiled for, and its compiler flags."""

from __future__ import annotations

import os
import platform
from difflib import get_close_matches
from functools import cache
from pathlib import Path

# Instruction sets by name, best first, and the processor features that each needs (as in /proc/cpuinfo).
FEATURES: dict[str, tuple[str, ...]] = {
    "avx512": ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx2", "fma"),
    "avx2": ("avx2", "fma"),
    "plain": (),
}
VARIABLE = "SSM_KERNELS_INSTRUCTIONS"  # environment variable that names an instruction set


class InstructionsError(ValueError):
    """The instruction set does not exist, or this processor lacks it."""


@cache
def description() -> tuple[str, frozenset[str]]:
    """Name and features of the processor. The set of features is empty if the system does not list them."""
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
    """Instruction sets of this processor, best first. The last is always "plain", which needs no feature."""
    present = description()[1]
    return tuple(name for name, needed in FEATURES.items() if present.issuperset(needed))


def instructions() -> str:
    """The instruction set that the C++ is compiled for: $SSM_KERNELS_INSTRUCTIONS, or the best of this processor.

    Raises:
        InstructionsError: see `checked`.
    """
    return checked(os.environ.get(VARIABLE) or instruction_sets()[0], VARIABLE)


def checked(name: str, where: str) -> str:
    """Return `name` if this processor has that instruction set.

    Args:
        where: source of the name, for the message.

    Raises:
        InstructionsError: the name is unknown, or this processor lacks the set. The message says what is valid.
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
    """Compiler flags of an instruction set. The best set of an x86 processor also gets -march=native."""
    chosen = [f"-m{feature}" for feature in FEATURES[name]]
    if name != "plain":
        chosen.append(f"-DSIMD_{name.upper()}")
        if name == instruction_sets()[0]:
            chosen.append("-march=native")
    return chosen
