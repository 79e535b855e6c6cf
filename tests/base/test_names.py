"""Numbers inside names count as numbers."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from ssm.base import names
from ssm.base.names import natural


def test_natural_order() -> None:
    unsorted = ["lg_fig11", "lg_tab1", "lg_fig2", "bn_fig1", "lg_fig2b"]
    assert sorted(unsorted, key=natural) == ["bn_fig1", "lg_fig2", "lg_fig2b", "lg_fig11", "lg_tab1"]


@given(st.lists(st.text()))
def test_every_name_has_a_place(unsorted: list[str]) -> None:
    for names_in_some_order in (unsorted, unsorted[::-1], ["1\u00b2", *unsorted]):  # a digit that is no decimal
        keys = [natural(name) for name in sorted(names_in_some_order, key=natural)]
        assert keys == sorted(keys)


def test_examples() -> None:
    assert doctest.testmod(names) == (0, 1)
