"""What torch is asked of our operators, seen from outside."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Recording(TorchDispatchMode):
    """What is asked of our operators, and what they answer: of the forward also what it saves for the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []
        self.outputs: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace == "ssm_kernels":
            self.calls.append((func, args))
            self.outputs += result
        return result
