"""`ssm diagnose` with its defaults, on models that are read through transformers and one file of prose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from models.test_foreign import MODELS, made
from small import WORDS

from ssm.cli.main import main

LENGTH, WINDOWS = 1024, 64
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
def test_what_transformers_saved_is_diagnosed(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert name in MODELS
    made(name, **BYTES).save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text(prose(WINDOWS * (LENGTH + 1)))
    given = ["--text", str(tmp_path / "text.txt"), "--context", "32", "--length", str(LENGTH)]
    assert main(["diagnose", str(tmp_path / "model"), *given, "-o", str(tmp_path / "out")]) == 0
    record = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    assert record["facts"]["sequences"] == WINDOWS
    print(record["facts"]["missing"])
    tables = {path.stem for path in (tmp_path / "out" / "tables").iterdir()}
    assert {"passkey", "needles", "ruler"} <= tables
    assert "Traceback" not in capsys.readouterr().err
