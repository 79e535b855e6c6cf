"""The record of a repair's search, damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from models.test_foreign import made

from ssm.base.errors import OutputError
from ssm.extension.folder import Folder
from ssm.extension.repairing import Repairing
from ssm.models.opening import open_model
from ssm.specs.repairs import ScaleA


def test_numbers_that_are_damaged_are_one_line(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repairing = Repairing.__new__(Repairing)
    repairing.folder, repairing.opened = Folder(tmp_path), open_model(world / "theirs")
    monkeypatch.setattr(Repairing, "repair", ScaleA())
    path = repairing.folder.repair
    path.parent.mkdir(parents=True)

    def chosen(*numbers: float | None) -> list[float | None]:
        record = {"rules": ["far_perplexity", 1.0], "chosen": numbers, "trials": 1, "candidates": []}
        path.write_text(json.dumps(record))
        return repairing._read()["chosen"]

    assert chosen(2.0, None) == [2.0, None]
    made("Bamba").save_pretrained(tmp_path / "theirs")  # that ssm does not convert: two layers have a state
    for model in (world / "theirs", tmp_path / "theirs"):
        repairing.opened = open_model(model)
        assert chosen(2.0, 4.0) == [2.0, 4.0]
    for numbers, said in (
        ((2.0,), "chosen: expected 2 numbers"),
        ((2.0, -1.0), "chosen.1: expected a number above 0, got -1.0"),
    ):
        with pytest.raises(OutputError, match=f"^{path}: not the search of a repair: {said}"):
            chosen(*numbers)
