"""Small faults that the tests must see: each a change of one place in the code, as a tired author might make it.

A mutant stands in the file that names the package it changes. `run.py` above makes them, one at a time, in a copy of
the project, and wants its tests to fail.
"""

from __future__ import annotations

from mutants.catalogue import claims, commands, data, evaluation, ground, kernels, models, plan, training
from mutants.catalogue.mutant import Mutant

__all__ = ["MUTANTS", "Mutant"]

MUTANTS: tuple[Mutant, ...] = (
    *kernels.MUTANTS,
    *ground.MUTANTS,
    *models.MUTANTS,
    *data.MUTANTS,
    *training.MUTANTS,
    *evaluation.MUTANTS,
    *claims.MUTANTS,
    *plan.MUTANTS,
    *commands.MUTANTS,
)
