"""What this processor can do, and the compiler's flags for it."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

# Instruction sets by name, best first: the processor's features that each needs (as in /proc/cpuinfo), and its flags.
FEATURES: dict[str, tuple[str, ...]] = {
    "avx512": ("avx512f", "avx512dq", "avx512bw", "avx512vl", "avx2", "fma"),
    "avx2": ("avx2", "fma"),
    "portable": (),
}


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
    """Those that this processor has, best first; "portable" is always the last."""
    present = description()[1]
    return tuple(name for name, needed in FEATURES.items() if present.issuperset(needed))


def flags(simd: str) -> list[str]:
    """The compiler's options for an instruction set; the best one is also tuned to this very processor."""
    chosen = [f"-m{feature}" for feature in FEATURES[simd]]
    if simd != "portable":
        chosen.append(f"-DSIMD_{simd.upper()}")
        if simd == instruction_sets()[0]:
            chosen.append("-march=native")
    return chosen
