"""The list of mutants fits the code as it is: `make mutants` has something to do, and says what it means."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest
from mutants import catalogue
from mutants.catalogue import MUTANTS, Mutant
from mutants.run import as_collected, chosen, mutated

ROOT = Path(__file__).parents[2]


def test_there_are_enough_of_them() -> None:
    areas = Counter(mutant.file.split("/")[1] for mutant in MUTANTS)
    assert len(MUTANTS) >= 60
    assert {"ssm_kernels", "training", "evaluation", "claims", "plan"} <= areas.keys()
    assert max(Counter((mutant.file, mutant.breaks) for mutant in MUTANTS).values()) == 1


def test_every_file_of_the_catalogue_is_in_it() -> None:
    files = {path.stem for path in Path(catalogue.__file__).parent.glob("*.py")} - {"__init__", "mutant"}
    listed = [mutant for name in files for mutant in import_module(f"mutants.catalogue.{name}").MUTANTS]
    assert sorted(listed) == sorted(MUTANTS)


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


NAMES = ["kernels/test_x.py::test_f[native-scan-cpp]", "kernels/test_x.py::test_f[native-scan-torch]"]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("kernels/test_x.py", ["kernels/test_x.py"]),
        ("kernels/test_x.py::test_f", ["kernels/test_x.py::test_f"]),
        ("kernels/test_x.py::test_f[scan-cpp]", NAMES[:1]),
        ("kernels/test_x.py::test_f[scan]", NAMES),
        ("kernels/test_x.py::test_f[sca]", []),
        ("kernels/test_x.py::test_f[scan-triton]", []),
        ("kernels/test_x.py::test", []),
        ("kernels/test_y.py", []),
    ],
)
def test_a_test_is_named_by_some_of_its_parameters(test: str, expected: list[str]) -> None:
    assert chosen(test, NAMES) == expected


def test_all_that_cannot_be_collected_is_told_before_anything_runs(tmp_path: Path) -> None:
    class Copy:
        folder = tmp_path

        def names(self, files: Iterable[str]) -> list[str]:
            assert list(files) == ["kernels/test_x.py"]
            return NAMES

    (tmp_path / "tests/kernels").mkdir(parents=True)
    (tmp_path / "tests/kernels/test_x.py").touch()
    listed = ("kernels/test_x.py::test_f[cpp]", "kernels/test_x.py::test_ff", "gone/test_y.py", "kernels/test_x.py")
    mutant = MUTANTS[0]._replace(tests=listed)
    with pytest.raises(ValueError, match="no such test") as caught:
        as_collected([mutant], Copy())
    first, second = str(caught.value).splitlines()
    assert first.startswith("kernels/test_x.py::test_ff: ")
    assert first.endswith("did you mean kernels/test_x.py::test_f?")
    assert second.startswith("gone/test_y.py: ")
    [found] = as_collected([mutant._replace(tests=listed[:1])], Copy())
    assert found.tests == (NAMES[0],)
