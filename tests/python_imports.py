"""The imports of Python code."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping


def imports(tree: ast.AST, known: Mapping[str, object], types: bool = True, late: bool = True) -> Iterator[str]:
    """The modules that some code imports.

    Args:
        known: modules that `from package import module` may name.
        types: include imports under TYPE_CHECKING.
        late: include imports inside functions.
    """
    for node in ast.iter_child_nodes(tree):
        if not types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if not late and isinstance(node, ast.FunctionDef):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else str(node.module)
        yield from imports(node, known, types, late)
