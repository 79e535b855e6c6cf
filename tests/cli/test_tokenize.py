"""`ssm tokenize`: builds a store, leaves a finished one alone, refuses a folder of another."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from ssm.base.errors import ConfigError, OutputError
from ssm.cli import tokenize
from ssm.data.store import TokenStore
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import DataSpec


def run(*words: object) -> int:
    parser = argparse.ArgumentParser()
    tokenize.add_arguments(parser)
    return tokenize.run(parser.parse_args([str(word) for word in words]))


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    for number in range(30):
        (tmp_path / f"{number:02}.txt").write_text(f"document {number}\n" * 5)
    spec = DataSpec(name="x", corpus=FilesCorpus(paths=(str(tmp_path / "*.txt"),)))
    (tmp_path / "spec.json").write_text(json.dumps(spec.content()))
    return tmp_path / "spec.json"


def test_a_store_is_built_once(spec_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "tokens"
    assert run(spec_file, "--out", out, "--workers", 2) == 0
    store = TokenStore.open(out)
    said = capsys.readouterr().out
    assert f"{store.train.n_tokens:,} train tokens in {store.train.n_documents} documents" in said
    assert "already" not in said
    assert run(spec_file, "--out", out) == 0
    assert "already there, nothing done" in capsys.readouterr().out


def test_a_store_of_another_spec_is_refused(spec_file: Path, tmp_path: Path) -> None:
    run(spec_file, "--out", tmp_path / "tokens")
    content = json.loads(spec_file.read_text()) | {"held_out": 0.4}
    spec_file.write_text(json.dumps(content))
    with pytest.raises(OutputError, match="holds the token store of another spec"):
        run(spec_file, "--out", tmp_path / "tokens")


def test_a_wrong_spec_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text('{"name": "x", "corpus": {"kind": "files", "path": ["x"]}}')
    with pytest.raises(ConfigError, match="unknown key 'path'; did you mean 'paths'"):
        run(tmp_path / "spec.json", "--out", tmp_path / "tokens")
    assert not (tmp_path / "tokens").exists()
