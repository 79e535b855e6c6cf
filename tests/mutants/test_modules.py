"""`make mutants` finds the files in modules.toml, and reports the line of a mutant."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants import run

# All functions have the same last line.
TEXT = """def near(a):
    return a + 1


# A comment.
def far(a):
    return a + 1


class Near:
    @staticmethod
    def far(a):
        return a + 1


class Far:
    @staticmethod
    def far(a):
        return a + 1
"""


@pytest.mark.parametrize("name", run.MODULES)
def test_the_files_of_a_module_exist(name: str) -> None:
    module = run.MODULES[name]
    assert [path for path in (module.file, *module.tests) if not (run.ROOT / path).is_file()] == []


@pytest.mark.parametrize(
    ("mutant", "above", "line"),
    [("x_near", "", 2), ("x_far", " # A comment.\n", 7), ("xǁNearǁfar", " @staticmethod\n", 13), ("xǁFarǁfar", "", 19)],
)
def test_a_survivor_has_its_line(
    mutant: str, above: str, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mutmut counts lines from the function on."""
    (tmp_path / "module.py").write_text(TEXT)
    diff = f"--- module.py\n+++ module.py\n@@ -1,2 +1,2 @@\n{above} def f(a):\n-    return a + 1\n+    return a - 1\n"
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "mutmut", lambda *_: f"# name\n{diff}")
    found = run.place(tmp_path, run.Module("module.py", [], "0", 0), f"module.{mutant}__mutmut_3")
    assert found == f"module.py:{line}: return a + 1  ->  return a - 1"
