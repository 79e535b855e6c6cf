"""The documentation names every family, and the commands work on a random ninth of them.

`SEED=7 make test` draws the same ninth again. `python tests/families/run.py NAME` checks a single family.
"""

from __future__ import annotations

import os
import random
import secrets
from collections import Counter
from pathlib import Path

import pytest
from families import models
from families.check import check_family

from ssm.cli import diagnose, extend
from ssm.models.families import FAMILIES, what_is_extended, what_is_read
from ssm.models.formats import FORMATS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "families.md"
# All workers of one pytest run draw the same families.
SEED = os.environ.get("SEED") or os.environ.get("PYTEST_XDIST_TESTRUNUID", secrets.token_hex(4))[:8]
SLOW = {"Jamba", "MiniMax"}  # read token by token, which takes minutes: only `make families` includes them
ALWAYS = {"Llama"}  # it has no recurrent state
OTHERS = sorted(FAMILIES.keys() - SLOW - ALWAYS)
DRAWN = sorted({*ALWAYS, *random.Random(SEED).sample(OTHERS, -(-len(FAMILIES) // 9) - len(ALWAYS))})


def test_documentation_and_help_name_every_family() -> None:
    read, extended = what_is_read(), what_is_extended()
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if "|" in line][2:]
    assert [row[:2] for row in rows] == [[family.name, family.library] for family in FAMILIES.values()]
    for family, (*_, how, extends) in zip(FAMILIES.values(), rows, strict=True):
        assert family.name in read
        assert how == ("ssm's own code" if family.format else "transformers' own forward pass")
        assert extends == (f"no: {family.why_not_extend}" if family.why_not_extend else "yes")
    assert read in " ".join(diagnose.EPILOG.split())
    assert extended in " ".join(extend.EPILOG.split())


def test_every_format_belongs_to_a_family() -> None:
    named = Counter(family.format for family in FAMILIES.values() if family.format is not None)
    assert named.keys() == FORMATS.keys()
    for family in FAMILIES.values():
        if family.format is not None:
            assert family.library == FORMATS[family.format].library


def test_every_family_has_a_tiny_model() -> None:
    assert models.MODELS.keys() == FAMILIES.keys()


@pytest.mark.usefixtures("without_plots")  # `make families` draws them
@pytest.mark.parametrize("name", DRAWN, ids=[f"{name}, SEED={SEED}" for name in DRAWN])
def test_the_commands_work_on_a_family(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked = check_family(FAMILIES[name], tmp_path, lambda: capsys.readouterr().err)
    assert checked.wrong == (), str(checked)
