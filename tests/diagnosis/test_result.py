"""A diagnosis as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from diagnosis.fabricated import Tables, diagnosis, everything, facts, fails_from, tables

from ssm.base.errors import TableError
from ssm.diagnosis.result import Interval, as_json, from_json, read_diagnosis_record


def test_a_diagnosis_survives_json() -> None:
    found = diagnosis(everything(0, fails_from(3100)), missing=("passkey: not requested",), looks=3)
    text = json.dumps(as_json(found), allow_nan=False, sort_keys=True)  # as files are written
    again = from_json(json.loads(text), found.tables)
    assert again == found
    assert list(again.readings.ratios) == [4096, 8192, 16384, 32768]


def test_nan_and_open_ends_survive_json() -> None:
    found = diagnosis(tables(0))
    ratios = {4096: Interval(math.nan, -math.inf, math.inf), 8192: Interval(1.0, 0.9, math.inf)}
    odd = replace(found, readings=replace(found.readings, ratios=ratios, failure=Interval(3100.0, 2800.0, math.inf)))
    text = json.dumps(as_json(odd), allow_nan=False)
    back = from_json(json.loads(text), found.tables).readings
    assert math.isnan(back.ratios[4096].value)
    assert (back.ratios[4096].low, back.ratios[4096].high) == (-math.inf, math.inf)
    assert back.ratios[8192] == ratios[8192]
    assert back.failure == odd.readings.failure


def test_a_broken_record_gives_one_line(tmp_path: Path) -> None:
    found = diagnosis(tables(0))
    record = as_json(found)
    del record["verdict"]
    with pytest.raises(TableError, match="it has no 'verdict'"):
        from_json(record, found.tables)
    record = as_json(found)
    record["facts"]["context"] = "long"
    with pytest.raises(TableError, match=r"context: [^\n]*$"):
        from_json(record, found.tables)
    path = tmp_path / "diagnosis.json"
    with pytest.raises(TableError, match=r"diagnosis\.json: no such file"):
        read_diagnosis_record(path)
    for text, says in (("{", "not a readable record of a diagnosis"), ("[]", "not the record of a diagnosis")):
        path.write_text(text)
        with pytest.raises(TableError, match=says):
            read_diagnosis_record(path)


def test_only_measured_tables_are_present() -> None:
    assert list(tables(0).present()) == ["position_loss", "restart_loss", "length_class"]
    assert len(everything(0).present()) == 7
    assert isinstance(tables(0), Tables)


def test_reasons_for_missing_measurements() -> None:
    known = facts(missing=("passkey: needs tokens: none", "Effective Remembrance: the budget was spent"))
    assert known.why_missing() == {"passkey": "needs tokens: none", "Effective Remembrance": "the budget was spent"}
