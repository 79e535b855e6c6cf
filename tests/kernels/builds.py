"""The builds of the C++: the default compiler at every instruction set of the processor, Clang at the best."""

from __future__ import annotations

import shutil
from typing import NamedTuple

from ssm_kernels.native import NativeUnavailable, find_compiler, instruction_sets, instructions


class Build(NamedTuple):
    """A compiler and an instruction set. An empty field selects the user's default."""

    compiler: str = ""
    instructions: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, self)) or "native"


NATIVE = Build()


def _others() -> tuple[list[Build], list[Build]]:
    try:
        usual = find_compiler()
    except NativeUnavailable:
        return [], []
    narrower = [Build("", name) for name in instruction_sets() if name != instructions()]
    with_clang = usual != ["clang++"] and shutil.which("clang++")
    return narrower, [Build("clang++")] if with_clang else []


OTHER_INSTRUCTIONS, OTHER_COMPILERS = _others()
