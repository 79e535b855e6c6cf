"""Reads the commands in the output of `ssm diagnose` and `ssm extend`."""

from __future__ import annotations

from collections.abc import Iterable


def commands(lines: Iterable[str]) -> dict[str, str]:
    """The commands by their headings. The heading "With LIBRARY:" is shortened to the library.

    A heading is a line that ends with a colon. A command continues after a line that ends with a backslash.
    """
    found: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if name:
            found[name].append(line)
            name = name if line.endswith("\\") else ""
        elif line.endswith(":") and not line.startswith(" "):
            name = line.removeprefix("With ").removesuffix(":")
            found[name] = []
    return {name: "\n".join(command) for name, command in found.items()}
