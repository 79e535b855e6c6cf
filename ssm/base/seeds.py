"""Named, seeded random generators without hidden state.

Every generator is a function of (seed, stream, step). So two arms of an experiment read data in the same order, even if
one of them also draws noise. A resumed run needs no saved generator.
"""

from __future__ import annotations

import hashlib

import numpy as np


def derived_seed(seed: int, stream: str, step: int = 0) -> int:
    """A 63-bit seed for the random stream called `stream` ("data", "initialization", "state" ...) at `step`."""
    digest = hashlib.blake2b(f"{seed}/{stream}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def numpy_generator(seed: int, stream: str, step: int = 0) -> np.random.Generator:
    """A NumPy generator for (seed, stream, step)."""
    return np.random.Generator(np.random.Philox(derived_seed(seed, stream, step)))
