"""What a terminal shows, read as its user reads it."""

from __future__ import annotations

from collections.abc import Iterable


def commands(lines: Iterable[str]) -> dict[str, str]:
    """Library -> command of a shell, of what `ssm extend` prints; a command goes on where its line ends with a \\."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if name:
            found[name].append(line)
            name = name if line.endswith("\\") else ""
        elif line.startswith("With "):
            name = line.removeprefix("With ").removesuffix(":")
            found[name] = []
    return {name: "\n".join(command) for name, command in found.items()}
