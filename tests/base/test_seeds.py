"""Streams of random numbers: each a function of its seed, name and step, and of no other."""

from __future__ import annotations

from itertools import product

from ssm.base.seeds import derived_seed, numpy_generator


def test_every_seed_name_and_step_has_numbers_of_its_own() -> None:
    asked = list(product((1, 2, 11), ("data", "state", "1"), (0, 1, 12)))
    assert len({derived_seed(*one) for one in asked}) == len(asked)
    assert len({numpy_generator(*one).random() for one in asked}) == len(asked)


def test_numbers_are_those_of_all_results_so_far() -> None:
    """On any machine, with any Python: a run that is resumed elsewhere continues with the same text and noise."""
    assert derived_seed(1, "data", 2) == 5906135502656847022
    assert 0 <= derived_seed(1, "data") < 2**63
