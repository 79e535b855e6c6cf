"""The process that copies what a command prints to where it would go and to a file; `ssm.base.log` starts it.

It imports nothing of ssm and next to nothing else, because it is started with every job of a workflow.
"""

import os
import select
import sys

PIECE = 65536  # bytes


def copy(name: str, sources: dict[int, int], file: int, work: int) -> None:
    """Copy until nobody is left who could print.

    Args:
        name: of the file, for a message.
        sources: descriptors to read from, each with that of where it would go.
        file: a descriptor of the file.
        work: a socket. When the command has ended its part, this ends; it is told when all that it printed is copied.
    """
    sound, waits = True, [work]
    while sources:
        ready = select.select([*sources, *waits], [], [])[0]
        for source in [source for source in ready if source in sources]:
            piece = os.read(source, PIECE)
            if not piece:
                del sources[source]
                continue
            write(sources[source], piece)
            problem = write(file, piece)
            if problem and sound:
                says = (
                    f"{name}: cannot be written ({problem.strerror}); the work goes on, and part of its log is lost\n"
                )
                write(2, says.encode())
            sound = sound and not problem
        if ready == waits == [work]:
            waits = []
            write(work, b"+")


def write(place: int, piece: bytes) -> OSError | None:
    """Write all of it; returns what kept us from that."""
    try:
        while piece:
            piece = piece[os.write(place, piece) :]
    except OSError as problem:
        return problem
    return None


if __name__ == "__main__":
    stdout, stderr, file, work = map(int, sys.argv[2:])
    copy(sys.argv[1], {stdout: 1, stderr: 2}, file, work)
