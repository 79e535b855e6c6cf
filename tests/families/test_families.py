"""README names every family; every run of the tests draws a third of them and types the user's commands.

`SEED=7 make test` draws the same third again. `python tests/families/run.py NAME` walks a single one.
"""

from __future__ import annotations

import os
import random
import secrets
from collections import Counter
from pathlib import Path

import pytest
from families import models
from families.road import travel

from ssm.cli import diagnose, extend
from ssm.models.families import FAMILIES, what_is_extended, what_is_read
from ssm.models.formats import FORMATS

README = Path(__file__).parents[2] / "README.md"
# The workers of one run of pytest draw the same families.
SEED = os.environ.get("SEED") or os.environ.get("PYTEST_XDIST_TESTRUNUID", secrets.token_hex(4))[:8]
SLOW = {"Jamba", "MiniMax"}  # read token by token, minutes each: only `make families` types their commands
DRAWN = random.Random(SEED).sample(sorted(FAMILIES.keys() - SLOW), -(-len(FAMILIES) // 3))


def test_readme_and_help_name_every_family() -> None:
    read, extended = what_is_read(), what_is_extended()
    for family in FAMILIES.values():
        assert family.name in read
    words = " ".join(README.read_text(encoding="utf-8").split())
    assert read in words
    assert extended in words
    assert read in " ".join(diagnose.EPILOG.split())
    assert extended in " ".join(extend.EPILOG.split())


def test_every_format_is_of_a_family() -> None:
    named = Counter(family.format for family in FAMILIES.values() if family.format is not None)
    assert named.keys() == FORMATS.keys()
    for family in FAMILIES.values():
        if family.format is not None:
            assert family.library == FORMATS[family.format].library


def test_every_family_has_a_tiny_model() -> None:
    assert models.MODELS.keys() == FAMILIES.keys()


@pytest.mark.usefixtures("without_pictures")  # `make families` draws them
@pytest.mark.parametrize("name", DRAWN, ids=[f"{name}, SEED={SEED}" for name in DRAWN])
def test_the_road_of_a_family(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    end = travel(FAMILIES[name], tmp_path, lambda: capsys.readouterr().err)
    assert end.wrong == (), str(end)
