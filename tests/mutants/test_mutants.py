"""The list of mutants fits the code as it is: `make mutants` has something to do, and says what it means."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from mutants.catalogue import MUTANTS, Mutant
from mutants.run import mutated

ROOT = Path(__file__).parents[2]


def test_there_are_enough_of_them() -> None:
    areas = Counter(mutant.file.split("/")[1] for mutant in MUTANTS)
    assert len(MUTANTS) >= 60
    assert {"ssm_kernels", "training", "evaluation", "claims", "plan"} <= areas.keys()
    assert max(Counter((mutant.file, mutant.breaks) for mutant in MUTANTS).values()) == 1


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.breaks}")
def test_it_can_be_made(mutant: Mutant) -> None:
    """In Python it parses; in C++ all brackets close that did."""
    text = mutated(ROOT, mutant)
    if mutant.file.endswith(".py"):
        ast.parse(text)
        assert ast.dump(ast.parse(mutant_free(mutant))) != ast.dump(ast.parse(text)), "nothing has changed"
    else:
        assert {c: mutant.old.count(c) - mutant.new.count(c) for c in "(){}[]"} == dict.fromkeys("(){}[]", 0) or all(
            mutant.old.count(a) - mutant.new.count(a) == mutant.old.count(b) - mutant.new.count(b)
            for a, b in ("()", "{}", "[]")
        )
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert (ROOT / "tests" / path).exists(), test
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / "tests" / path).read_text(), test


def mutant_free(mutant: Mutant) -> str:
    return (ROOT / mutant.file).read_text(encoding="utf-8")
