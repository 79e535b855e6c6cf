"""`ssm diagnose` with its defaults, on models that are read through transformers and one file of prose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from models.test_foreign import made
from small import WORDS

from ssm.cli.main import main
from ssm.diagnosis import load_diagnosis

pytestmark = pytest.mark.usefixtures("without_pictures")
LENGTH, WINDOWS = 1024, 16
BYTES: dict[str, Any] = {"vocab_size": 256, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}


def prose(size: int) -> str:
    """So many characters of sentences and lines, each another."""
    words, sentences, length = len(WORDS), [], 0
    while length < size:
        number = len(sentences)
        chosen = [WORDS[(i * i + number * (7 + i) + number // words) % words] for i in range(5 + number % 9)]
        sentences.append(" ".join(chosen).capitalize() + (".\n" if number % 4 == 3 else "."))
        length += len(sentences[-1]) + 1
    return " ".join(sentences)[:size]


@pytest.mark.parametrize("name", ["Llama", "Bamba"])
def test_what_transformers_saved_is_diagnosed(name: str, tmp_path: Path) -> None:
    made(name, **BYTES, num_hidden_layers=2).save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text(prose(WINDOWS * (LENGTH + 1)))
    given = ["--text", str(tmp_path / "text.txt"), "--context", "32", "--length", str(LENGTH)]
    assert main(["diagnose", str(tmp_path / "model"), *given, "-o", str(tmp_path / "out")]) == 0
    said = json.loads((tmp_path / "out" / "diagnosis.json").read_text())["facts"]
    assert said["sequences"] == WINDOWS
    assert not {"passkey", "needles", "RULER"}.intersection(line.partition(":")[0] for line in said["missing"])
    tables = load_diagnosis(tmp_path / "out").tables
    assert tables.passkey is not None
    assert tables.accuracy is not None
    assert {"capital", "niah_single_1", "niah_multikey_2"} <= set(tables.accuracy["group"])
    assert set(tables.accuracy["length"]) == {256, 512, LENGTH}
