"""Matrix scans in chunks of any length."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.cases import Case, cases
from kernels.numerics import with_gradients, worst

CHUNKS = st.sampled_from((1, 2, 3, 7, 8, 16, 31, 32, 33, 64, 100))


def check_any_chunk(operation: str, backend: str, examples: int) -> None:
    """Outputs, states and gradients are those of the reference, whatever the chunk."""

    @settings(deadline=None, max_examples=examples)
    @given(cases(operation, 150), CHUNKS)
    def check(case: Case, chunk: int) -> None:
        expected = with_gradients(case.function("reference"), case.values, 0)
        chunked = case._replace(options={"chunk": chunk})
        assert worst(with_gradients(chunked.function(backend), case.values, 0), expected) < 1e-11

    check()
