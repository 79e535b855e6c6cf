"""The three parts of a user's text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small import text

from ssm.base.errors import DataError
from ssm.data.own_text import disjoint_windows
from ssm.data.store import TokenSplit
from ssm.extension.text import parts, tokenized
from ssm.specs.data import BytesTokenizer

LENGTH = 64


def split(windows: int) -> TokenSplit:
    tokens = np.arange(windows * (LENGTH + 1), dtype=np.uint32)
    return TokenSplit("text", [tokens], np.array([0, 100, 333]), len(tokens))


@pytest.mark.parametrize(("windows", "page", "choice"), [(8, 4, 4), (16, 12, 4), (40, 30, 10), (200, 184, 16)])
def test_what_chooses_and_what_reports_share_no_token(windows: int, page: int, choice: int) -> None:
    whole = split(windows)
    reports, chooses = (disjoint_windows(part, LENGTH, seed=1) for part in parts(whole, LENGTH))
    assert (len(reports.positions), len(chooses.positions)) == (page, choice)
    read = []
    for found in (reports, chooses):
        inputs, targets = found.read(np.arange(len(found.positions)), 0, LENGTH)
        assert (targets == inputs + 1).all()
        read.append(set(inputs.flatten().tolist()) | set(targets.flatten().tolist()))
    assert not read[0] & read[1]
    assert read[0] | read[1] == set(range(whole.n_tokens))


def test_a_stretch_is_the_split_from_there_on() -> None:
    whole = split(8)
    first, second = parts(whole, LENGTH)
    cut = first.n_tokens
    assert first.n_tokens + second.n_tokens == whole.n_tokens
    assert second.read(5, 20).tolist() == whole.read(cut + 5, 20).tolist()
    assert first.documents.tolist() == [0, 100]
    assert second.documents.tolist() == [0, 333 - cut]
    assert second.document_starts(0, 100).nonzero()[0].tolist() == [0, 333 - cut]
    assert first.document_starts(90, 20).nonzero()[0].tolist() == [10]
    for part in (first, second):
        with pytest.raises(IndexError, match="tokens"):
            part.read(part.n_tokens - 5, 6)
        with pytest.raises(IndexError, match="tokens"):
            part.read(-1, 3)


def test_too_few_tokens_are_one_line_that_says_how_many_it_takes() -> None:
    with pytest.raises(DataError, match=r"^text: 455 tokens; --length 64 needs at least 520 \(4 windows to measure"):
        parts(split(7), LENGTH)
    with pytest.raises(DataError, match=r"or --length 32$"):
        parts(split(7), LENGTH)


def write(folder: Path, documents: int) -> str:
    folder.mkdir()
    for number in range(documents):
        (folder / f"{number}.txt").write_text(text(number, 60))
    return str(folder)


def test_a_share_of_the_documents_is_held_out(tmp_path: Path) -> None:
    found = tokenized([write(tmp_path / "texts", 30)], (), 0.3, BytesTokenizer(), LENGTH, tmp_path / "tokens")
    store = found.train
    assert found.page.train is store.train
    assert found.page.held_out.n_tokens + found.choice.held_out.n_tokens == store.held_out.n_tokens
    assert store.train.n_documents + store.held_out.n_documents == 30
    assert found.words.endswith("(0.3 of the documents, held out)")


def test_other_files_are_held_out(tmp_path: Path) -> None:
    texts, others = write(tmp_path / "texts", 3), write(tmp_path / "others", 4)
    found = tokenized([texts], [others], 0.3, BytesTokenizer(), LENGTH, tmp_path / "tokens")
    assert found.train.train.n_documents == 3
    assert found.train.held_out.n_tokens == 0
    assert found.words == others
    whole = sum(len(Path(others, f"{number}.txt").read_bytes()) for number in range(4))
    assert found.page.held_out.n_tokens + found.choice.held_out.n_tokens == whole


def test_one_document_cannot_be_trained_on_and_held_out(tmp_path: Path) -> None:
    texts = write(tmp_path / "texts", 1)
    said = f"^{texts}: 1 document, too few to hold 0.1 of them out whole: give more documents"
    with pytest.raises(DataError, match=said):
        tokenized([texts], (), 0.1, BytesTokenizer(), LENGTH, tmp_path / "tokens")
    assert not (tmp_path / "tokens" / "text").exists()


def test_what_is_measured_may_not_be_trained_on(tmp_path: Path) -> None:
    whole, part = write(tmp_path / "texts", 9), str(tmp_path / "texts" / "7.txt")
    with pytest.raises(DataError, match=r"7\.txt: is in --text and in --held-out"):
        tokenized([whole], [part], 0.1, BytesTokenizer(), LENGTH, tmp_path / "tokens")
    assert not (tmp_path / "tokens").exists()
