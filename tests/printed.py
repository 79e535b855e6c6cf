"""What a terminal shows, read as its user reads it."""

from __future__ import annotations

from collections.abc import Iterable


def commands(lines: Iterable[str]) -> dict[str, str]:
    """What each command is for -> the command as a shell reads it.

    A line that ends with a colon says what the command below it is for; of "With LIBRARY:" that is the library.
    A command continues on the next line where its line ends with a backslash.
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
