"""How long a model is read: scripted models with known losses on a text of rising bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
import torch
import torch.nn.functional as F
from evaluation.rigged import Rigged, copying
from torch import Tensor

from ssm.base.errors import DataError
from ssm.data.build import build_store
from ssm.data.own_text import disjoint_windows, own_text
from ssm.data.store import TokenStore
from ssm.diagnosis import sampling
from ssm.diagnosis import session as session_module
from ssm.diagnosis.readings import recalled, solved
from ssm.diagnosis.recall import needles as told
from ssm.diagnosis.recall import ruler
from ssm.diagnosis.sampling import Sample, rounds, sample
from ssm.diagnosis.session import FixedWindowsContext, Session
from ssm.evaluation import stream
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import BytesTokenizer, DataSpec
from ssm.specs.diagnosis import LEAST, DiagnosisSpec
from ssm.specs.diagnosis_defaults import TOLERANCE

CONTEXT, LENGTH, WINDOWS = 16, 128, 160
BORDER = log(TOLERANCE)
CPU = torch.device("cpu")


@dataclass
class Count:
    """A state: the number of tokens read."""

    tokens: int
    nbytes: int = 8

    def copy(self) -> Count:
        return self

    def recurrent_states(self) -> list[Tensor]:
        return []

    def recurrent_layers(self) -> list[int]:
        return []


class Scripted:
    """Gives the right next byte a loss of `nats(positions since the zero state, tokens)`."""

    parameters_count, hidden_size, vocab_size = 7, 2, 256

    def __init__(self, nats: Callable[[Tensor, Tensor], Tensor]):
        self.nats, self.read = nats, 0

    def hidden(self, tokens: Tensor, state: Count | None = None) -> tuple[Tensor, Count]:
        """(B, T, 2): the next token, and how far its logit is above all others."""
        start = 0 if state is None else state.tokens
        self.read += tokens.numel()
        nats = self.nats(torch.arange(start, start + tokens.shape[1]), tokens).double()  # (T,) or (B, T)
        logit = (255 / nats.exp().sub(1)).log().expand(tokens.shape)
        return torch.stack([(tokens + 1) % 256, logit], -1).double(), Count(start + tokens.shape[1])

    def logits(self, hidden: Tensor) -> Tensor:
        return F.one_hot(hidden[..., 0].long(), 256) * hidden[..., 1:]


def holds(position: Tensor, tokens: Tensor) -> Tensor:
    return torch.full(position.shape, 1.5)


def breaks(position: Tensor, tokens: Tensor) -> Tensor:
    """Breaks by 0.5 nats from 48 tokens on. The losses also depend on the token, so that windows differ."""
    return 1.5 + 0.5 * (position >= 48) + 1e-3 * (tokens % 7)


def borderline(position: Tensor, tokens: Tensor) -> Tensor:
    """Exceeds the restart by log(1.1) on average. The first byte of a sequence decides on which side it is."""
    side = 2.0 * (tokens[:, :1] % 2) - 1
    return 1.5 + (position >= 2 * CONTEXT) * (BORDER + 0.2 * side)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    folder = tmp_path_factory.mktemp("rising")
    count = WINDOWS * (LENGTH + 1)
    (folder / "text.txt").write_bytes(bytes(i % 256 for i in range(count)))
    corpus = FilesCorpus(paths=(str(folder),))  # no text, so `own_text` refuses it
    build_store(DataSpec(name="rising", corpus=corpus, tokenizer=BytesTokenizer(), held_out=1.0), folder / "tokens")
    return TokenStore.open(folder / "tokens")


def taken(store: TokenStore, rule: Any, **settings: Any) -> tuple[Sample, Scripted]:
    model = Scripted(rule)
    spec = DiagnosisSpec.parse({"context": CONTEXT, "length": LENGTH} | settings, "tests")
    return sample(model, store, spec, CPU), model


@pytest.mark.parametrize(("most", "expected"), [(4, [4]), (64, [64]), (160, [64, 128, 160]), (256, [64, 128, 256])])
def test_rounds_double(most: int, expected: list[int]) -> None:
    assert rounds(most) == expected


def test_reading_stops_when_the_verdict_is_decided(store: TokenStore) -> None:
    found, _ = taken(store, breaks)
    assert (found.stopped_by, found.sequences, found.looks) == ("decided", 64, 3)
    assert (taken(store, holds)[0].stopped_by, taken(store, holds)[0].sequences) == ("decided", 64)
    spec = DiagnosisSpec(context=CONTEXT, length=LENGTH)
    whole = sample(Scripted(breaks), store, spec, CPU, all_windows=True)
    assert (whole.stopped_by, whole.sequences) == ("text", WINDOWS)
    limited = sample(Scripted(breaks), store, spec.model_copy(update={"sequences": 80}), CPU, all_windows=True)
    assert (limited.stopped_by, limited.sequences) == ("sequences", 80)


def test_too_few_windows_do_not_decide_that_a_model_holds(store: TokenStore) -> None:
    found, _ = taken(store, holds, sequences=63)
    assert (found.stopped_by, found.sequences) == ("sequences", 63)
    assert taken(store, breaks, sequences=16)[0].stopped_by == "decided"


def test_reading_stops_at_the_end_of_the_text(store: TokenStore) -> None:
    found, _ = taken(store, borderline)
    assert (found.stopped_by, found.sequences) == ("text", WINDOWS)
    found, _ = taken(store, borderline, sequences=WINDOWS)
    assert (found.stopped_by, found.sequences) == ("text", WINDOWS), "more windows need more text"


def test_reading_stops_at_the_limit_of_windows(store: TokenStore) -> None:
    found, _ = taken(store, borderline, sequences=80)
    assert (found.stopped_by, found.sequences, found.looks) == ("sequences", 80, 2)


def test_reading_stops_when_the_budget_is_spent(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock takes a second."""
    times = iter(range(10**6))
    monkeypatch.setattr(session_module, "time", SimpleNamespace(monotonic=lambda: float(next(times))))
    found, _ = taken(store, borderline, budget_seconds=1.0)
    assert (found.stopped_by, found.sequences) == ("budget", LEAST)
    assert found.tables.effective_remembrance is None
    assert found.tables.passkey is None
    spent = {text.partition(":")[0] for text in found.missing if text.endswith("the budget was spent")}
    assert spent == {"state statistics", "Effective Remembrance", "decays", "effective length", "size of the state"}


@pytest.mark.parametrize(
    ("seconds", "sequences"), [(5.0, LEAST), (8.0, LEAST), (11.0, 16), (40.0, 64), (100.0, WINDOWS)]
)
def test_the_budget_is_kept(store: TokenStore, monkeypatch: pytest.MonkeyPatch, seconds: float, sequences: int) -> None:
    """A slow model: 1,000 tokens take a second on the clock, so 16 windows and their restarts take 6 seconds.

    Reading windows for the verdict takes at most 60% of the budget.
    """
    model = Scripted(borderline)
    monkeypatch.setattr(session_module, "time", SimpleNamespace(monotonic=lambda: model.read / 1000))
    spec = DiagnosisSpec(context=CONTEXT, length=LENGTH, budget_seconds=seconds, passkey=False)
    found = sample(model, store, spec, CPU)
    assert (found.stopped_by, found.sequences) == ("budget" if sequences < WINDOWS else "text", sequences)
    assert model.read / 1000 <= seconds


def test_every_window_is_read_once_and_windows_are_numbered(store: TokenStore) -> None:
    found, _ = taken(store, borderline)
    losses = found.tables.position_loss
    assert losses["sequence"].unique().sort().to_list() == list(range(WINDOWS))
    assert losses.height == WINDOWS * losses["position_from"].n_unique()
    assert found.tables.restart_loss["sequence"].unique().sort().to_list() == list(range(WINDOWS))
    late = losses.filter(pl.col("position_from") >= 64).group_by("sequence").agg(pl.col("loss").mean())
    odd = float((late["loss"] > 1.5 + BORDER).mean())  # windows of 129 bytes begin with even and odd ones in turn
    assert odd == pytest.approx(0.5, abs=0.03)


class Sure(Rigged):
    """Its predictions have probability 1. It counts the tokens that it reads."""

    read = 0

    def hidden(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        self.read += tokens.numel()
        return super().hidden(tokens, state)

    def logits(self, hidden: Tensor) -> Tensor:
        return 40 * super().logits(hidden)


def test_needles_are_found_if_the_model_reads_far_enough(tmp_path: Path) -> None:
    """The model repeats what followed its last 8 bytes in the last 220 bytes."""
    (tmp_path / "text.txt").write_text("".join(f"Line {number} of a book.\n" for number in range(200)))
    store = own_text([str(tmp_path / "text.txt")], BytesTokenizer(), tmp_path / "tokens", held_out=1.0)
    windows = disjoint_windows(store.held_out, 512, 1, LEAST)
    model = Sure(copying(8, window=220))
    ctx = FixedWindowsContext(model, 1, store, CPU, "tests", given=windows)

    def needles(context: int) -> tuple[pl.DataFrame | None, list[str]]:
        session, model.read = Session(ctx, DiagnosisSpec(context=context, length=2 * context), rate=1e9), 0
        table = told(session)
        # All tokens that are read, written or compared count. Shorter answers than the longest take fewer.
        assert 0.9 * session.tokens <= model.read <= session.tokens
        return table, session.missing

    table, missing = needles(256)
    assert (table is not None, missing) == (True, [])
    cells = {(c.length, c.depth): c for c in recalled(table, "difficulty", "preferred")}
    assert {length for length, _ in cells} == {256, 512}, "half a context is too short"
    assert {cell.trials for cell in cells.values()} == {8}
    assert cells[256, 1.0].accuracy.value == cells[512, 1.0].accuracy.value == 1.0
    assert cells[512, 0.0].accuracy.value == 0.0
    assert needles(64) == (
        None,
        ["needles: length 128: too short for a needle, which needs 222 tokens with its question"],
    )


def looking_up(window: int) -> Callable[[Tensor], Tensor]:
    """Answers the question of niah from the last `window` bytes, and predicts zeros elsewhere."""

    def rule(read: Tensor) -> Tensor:
        predicted = torch.zeros_like(read)
        for row, tokens in enumerate(read.tolist()):
            text = bytes(tokens)
            asked = re.search(rb"The special magic number for (\S+) mentioned in the provided text is", text)
            if asked is None:
                continue
            told = re.findall(rb"numbers for " + asked[1] + rb" is: (\d+)", text[max(0, asked.end() - window) :])
            for i, byte in enumerate(b" " + told[-1] if told else b""):
                if asked.end() - 1 + i < len(text):
                    predicted[row, asked.end() - 1 + i] = byte
        return predicted

    return rule


def test_rulers_prompts_are_solved_if_the_model_reads_far_enough(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("A text.\n" * 400)
    store = own_text([str(tmp_path / "text.txt")], BytesTokenizer(), tmp_path / "tokens", held_out=1.0)
    windows = disjoint_windows(store.held_out, 512, 1, LEAST)
    ctx = FixedWindowsContext(Rigged(looking_up(1024)), 1, store, CPU, "tests", given=windows)
    session = Session(ctx, DiagnosisSpec(context=1024, length=2048), rate=1e9)
    table = ruler(session)
    assert table is not None
    cells = {(cell.task, cell.length): cell for cell in solved(table)}
    numbers = ("niah_single_1", "niah_multikey_2")
    assert set(cells) == {*((task, n) for task in numbers for n in (512, 1024, 2048)), ("vt", 2048)}
    assert {cell.trials for cell in cells.values()} == {16}
    for task in numbers:
        assert cells[task, 512].accuracy.value == cells[task, 1024].accuracy.value == 1.0
        assert 0.2 < cells[task, 2048].accuracy.value < 0.8, "half of the lines are too far back"
    assert cells["vt", 2048].accuracy.value == 0.0
    assert session.missing == []
    assert session.tokens >= 16 * (2 * (512 + 1024 + 2048) + 2048)
    short = Session(ctx, DiagnosisSpec(context=256, length=512), rate=1e9)
    assert ruler(short) is not None
    assert short.missing == ["vt: length 512: too short for vt, which needs 1746 tokens"]


def test_a_text_in_which_no_sentence_ends_has_no_needles(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("ACGT" * 2000)
    store = own_text([str(tmp_path / "text.txt")], BytesTokenizer(), tmp_path / "tokens", held_out=1.0)
    ctx = FixedWindowsContext(
        copying(8, window=20), 1, store, CPU, "tests", given=disjoint_windows(store.held_out, 512, 1, LEAST)
    )
    session = Session(ctx, DiagnosisSpec(context=256, length=512), rate=1e9)
    assert told(session) is None
    (why,) = session.missing
    assert why.startswith("needles: ")


def test_losses_are_the_scripted_ones(store: TokenStore) -> None:
    found, _ = taken(store, breaks)
    full, restarted = found.tables.position_loss, found.tables.restart_loss
    assert full.filter(pl.col("position_to") <= 48)["loss"].to_numpy() == pytest.approx(1.503, abs=0.004)
    assert full.filter(pl.col("position_from") >= 48)["loss"].to_numpy() == pytest.approx(2.003, abs=0.004)
    assert restarted["loss"].to_numpy() == pytest.approx(1.503, abs=0.004)


def test_tokens_are_counted(store: TokenStore) -> None:
    """Approximately: the cost of Effective Remembrance is an estimate."""
    found, model = taken(store, breaks)
    assert found.tokens == pytest.approx(model.read, rel=0.15)


def test_a_missing_state_is_reported(store: TokenStore) -> None:
    found, _ = taken(store, breaks)
    assert found.tables.state_statistics is None
    assert any(text.startswith("state statistics: the model has no recurrent state") for text in found.missing)


def test_the_size_of_the_state_is_measured_in_pieces(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole context at once may not fit into memory."""
    pieces = []

    class Growing(Scripted):
        def hidden(self, tokens: Tensor, state: Count | None = None) -> tuple[Tensor, Count]:
            pieces.append(tokens.numel())
            hidden, after = super().hidden(tokens, state)
            return hidden, replace(after, nbytes=8 * after.tokens)

    monkeypatch.setitem(stream.FORWARD_TOKENS, "cpu", 64)
    spec = DiagnosisSpec(context=128, length=256, passkey=False)
    assert sample(Growing(breaks), store, spec, CPU).state_bytes == 8 * 128
    assert max(pieces) == 64


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_a_lack_of_memory_costs_one_measurement(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """What is not measured does not count as read."""
    whole, _ = taken(store, breaks)

    def lacking(*_: object) -> None:
        raise error

    for name in ("effective_remembrance", "segments"):
        monkeypatch.setattr(sampling, name, lacking)
    found, _ = taken(store, breaks)
    assert {"Effective Remembrance: out of memory", "size of the state: out of memory"} <= {*found.missing}
    assert found.tables.present().keys() == whole.tables.present().keys() - {"effective_remembrance"}
    assert (whole.state_bytes, found.state_bytes) == (8, None)
    assert found.stopped_by == whole.stopped_by
    assert found.tokens < whole.tokens


@pytest.mark.parametrize(("after", "peak"), [(900, None), (901, 901 * 1024)])
def test_memory_that_was_used_before_is_not_reported(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch, after: int, peak: int | None
) -> None:
    """The operating system knows the peak of the whole process, in KiB."""
    peaks = iter([900, after])
    usage = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda _: SimpleNamespace(ru_maxrss=next(peaks)))
    monkeypatch.setattr(sampling, "resource", usage)
    assert taken(store, breaks)[0].peak_bytes == peak


def test_a_text_of_too_few_windows(store: TokenStore) -> None:
    with pytest.raises(DataError, match=r"needs at least .* \(4 windows\): give more text, or --length 4096"):
        taken(store, holds, length=8192)
