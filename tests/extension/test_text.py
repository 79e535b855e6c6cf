"""The three parts of a user's text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small import text

from ssm.base.errors import DataError
from ssm.data.own_text import disjoint_windows
from ssm.data.store import TokenSplit
from ssm.extension.text import Text, parts, tokenized
from ssm.specs.data import BytesTokenizer
from ssm.specs.diagnosis import ENOUGH, LEAST, DiagnosisSpec
from ssm.specs.extension import MOST_CHOICE_WINDOWS

LENGTH = 64


def split(windows: int) -> TokenSplit:
    tokens = np.arange(windows * (LENGTH + 1), dtype=np.uint32)
    return TokenSplit("text", [tokens], np.array([0, 100, 333]), len(tokens))


@pytest.mark.parametrize(("windows", "page", "choice"), [(8, 4, 4), (16, 12, 4), (40, 30, 10), (200, 184, 16)])
def test_choice_and_diagnoses_share_no_token(windows: int, page: int, choice: int) -> None:
    whole = split(windows)
    reports, chooses = (disjoint_windows(part, LENGTH, 1, LEAST) for part in parts(whole, LENGTH))
    assert (len(reports.positions), len(chooses.positions)) == (page, choice)
    read = []
    for found in (reports, chooses):
        inputs, targets = found.read(np.arange(len(found.positions)), 0, LENGTH)
        assert (targets == inputs + 1).all()
        read.append(set(inputs.flatten().tolist()) | set(targets.flatten().tolist()))
    assert not read[0] & read[1]
    assert read[0] | read[1] == set(range(whole.n_tokens))


def test_a_part_is_the_rest_of_the_split() -> None:
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


SPEC = DiagnosisSpec(context=16, length=LENGTH)
BYTES = BytesTokenizer()


def write(folder: Path, documents: int, words: int = 60) -> str:
    folder.mkdir()
    for number in range(documents):
        (folder / f"{number}.txt").write_text(f"document {number}: {text(number, words)}")
    return str(folder)


def made(texts: str, folder: Path, share: float | None = None, held_out: tuple[str, ...] = ()) -> Text:
    return tokenized([texts], held_out, not held_out, share, BYTES, SPEC, folder / "tokens")


def tokens_of(part: TokenSplit) -> bytes:
    return part.read(0, part.n_tokens).astype(np.uint8).tobytes()


def test_some_of_many_documents_are_held_out_whole(tmp_path: Path) -> None:
    texts = write(tmp_path / "texts", 80)
    found = made(texts, tmp_path, 0.3)
    documents = {Path(texts, f"{number}.txt").read_bytes() for number in range(80)}
    held = tokens_of(found.page.held_out) + tokens_of(found.choice.held_out)
    out = {document for document in documents if document in held}
    assert found.held_out.words == f"{len(out)} of 80 documents of {texts}, whole"
    assert sum(map(len, out)) == len(held) == found.held_out.tokens
    assert sum(map(len, documents)) == len(held) + found.train.train.n_tokens
    assert 0.3 <= len(held) / sum(map(len, documents)) < 0.3 + 1 / 60
    assert all(document in tokens_of(found.train.train) for document in documents - out)


def test_a_single_document_is_cut_with_a_gap(tmp_path: Path) -> None:
    texts = write(tmp_path / "texts", 1, 3000)
    whole = Path(texts, "0.txt").read_bytes()
    found = made(texts, tmp_path, 0.2)
    last = len(whole) // 5
    assert tokens_of(found.train.train) == whole[: -last - LENGTH]
    assert tokens_of(found.page.held_out) + tokens_of(found.choice.held_out) == whole[-last:]
    said = f"the last {last:,} tokens of {texts}; nothing reads the {LENGTH} tokens before these"
    assert found.held_out.words == said
    assert found.files == f"the held-out part of {texts}"


def test_a_document_much_longer_than_the_others_is_cut(tmp_path: Path) -> None:
    texts = write(tmp_path / "texts", 5, 20)
    long = Path(texts, "2.txt")
    long.write_text(text(7, 6000))
    found = made(texts, tmp_path)
    assert "of one document of" in found.held_out.words
    assert long.read_bytes().endswith(tokens_of(found.choice.held_out))
    assert len(found.train.train.documents) == 5


@pytest.mark.parametrize("words", [1_000, 3_000, 30_000])
def test_the_share_is_enough_for_a_verdict_and_at_most_half(words: int, tmp_path: Path) -> None:
    texts = write(tmp_path / "texts", 1, words)
    found, tokens = made(texts, tmp_path), len(Path(texts, "0.txt").read_bytes())
    verdict_takes = (ENOUGH + MOST_CHOICE_WINDOWS) * (LENGTH + 1)
    assert found.held_out.tokens == min(max(tokens // 10, verdict_takes), tokens // 2)
    windows = found.page.held_out.n_tokens // (LENGTH + 1), found.choice.held_out.n_tokens // (LENGTH + 1)
    assert (found.held_out.verdict, found.held_out.choice) == windows
    if words == 1_000:
        assert found.held_out.line.endswith("takes 64 for the verdict: 10,400 tokens of text (about 10 kB)")
        assert replace(found.held_out, sequences=63).decides.endswith("(about 10 kB) and --sequences 64")
        (tmp_path / "enough.txt").write_text((text(0, 9_000) * 2)[:10_400])
        enough = tokenized([str(tmp_path / "enough.txt")], (), True, None, BYTES, SPEC, tmp_path / "enough")
        assert enough.held_out.verdict == ENOUGH
    else:
        assert found.held_out.verdict >= ENOUGH
        assert found.held_out.line.endswith("enough to decide whether it gained and whether it holds")


def test_too_little_text_gives_one_line_with_the_needed_amount(tmp_path: Path) -> None:
    texts = write(tmp_path / "texts", 1, 150)
    tokens = len(Path(texts, "0.txt").read_bytes())
    said = (
        rf"^{texts}: {tokens} tokens; --length 64 needs at least 1,040 \(about 1 kB: 4 windows to measure and 4 to "
        r"choose a checkpoint, where at most half of a text is held out\): give more text, or --length 32$"
    )
    with pytest.raises(DataError, match=said):
        made(texts, tmp_path)
    with pytest.raises(DataError, match=r"at least 5,200 \(.*where 0\.1 of the text is held out"):
        made(texts, tmp_path, 0.1)
    few = write(tmp_path / "few", 1)
    with pytest.raises(
        DataError, match=rf"^{few}: \d+ tokens; --length 64 needs at least 520 \(about 520 bytes: 4 windows"
    ):
        made(texts, tmp_path, held_out=(few,))


def test_other_files_are_held_out(tmp_path: Path) -> None:
    texts, others = write(tmp_path / "texts", 3), write(tmp_path / "others", 4)
    found = made(texts, tmp_path, held_out=(others,))
    assert len(found.train.train.documents) == 3
    assert found.files == others
    whole = sum(len(Path(others, f"{number}.txt").read_bytes()) for number in range(4))
    assert found.page.held_out.n_tokens + found.choice.held_out.n_tokens == whole


def test_the_same_file_cannot_train_and_be_held_out(tmp_path: Path) -> None:
    whole, part = write(tmp_path / "texts", 9), str(tmp_path / "texts" / "7.txt")
    with pytest.raises(DataError, match=r"7\.txt: is in --text and in --held-out"):
        made(whole, tmp_path, held_out=(part,))
    assert not (tmp_path / "tokens").exists()
