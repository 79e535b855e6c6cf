"""The terminal output: its width, its words, and its shell commands."""

from __future__ import annotations

import math
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from diagnosis.fabricated import diagnosis, everything, fails_from, tables
from hypothesis import given
from hypothesis import strategies as st
from printed import commands

from ssm.diagnosis.comparison import first_windows
from ssm.diagnosis.readings import perplexity
from ssm.diagnosis.result import Diagnosis, Interval, Tables
from ssm.diagnosis.terminal import (
    WIDTH,
    Row,
    command,
    diagnosis_lines,
    extension_lines,
    rows_of,
    table,
)
from ssm.diagnosis.verdict import digits, sentence_of

PAGE = Path("report/index.html")
EXTEND = ["ssm", "extend", "my-mamba", "--text", "book.txt", "--context", "2048", "--length", "32768", "-o", "new"]
names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=300)
numbers = st.floats(min_value=0) | st.just(math.nan)
ends = st.floats() | st.sampled_from([math.inf, -math.inf])
intervals = st.builds(Interval, numbers, ends, ends)
# Up to e^700: what `ssm.diagnosis.intervals` makes.
found_intervals = st.builds(Interval, *3 * [st.floats(0, 1.02e304) | st.sampled_from([math.nan, math.inf])])


def lines_of(found: Diagnosis) -> list[str]:
    return diagnosis_lines(found, PAGE, EXTEND)


def typed(lines: list[str]) -> list[str]:
    """The words of a command as a shell reads them."""
    script = "printf '%s\\0' " + "\n".join(lines)
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


@pytest.fixture(scope="module")
def broken() -> Diagnosis:
    return diagnosis(everything(0, fails_from(3100)))


def test_the_whole_output_for_a_model_that_breaks(broken: Diagnosis) -> None:
    assert "\n".join(lines_of(broken)) == (
        """\
The model breaks from about 3,200 tokens on (1.5 times its context; 95% interval
3,100 to 3,300): at 32,768 tokens its perplexity is 2.33 times (95% interval
2.17 to 2.53) that of a restart.

length  perplexity  ratio (95% interval)
 2,048        14.7  -
 4,096        15.9  1.15 (1.13 to 1.17)
 8,192        19.6  1.45 (1.40 to 1.51)
16,384        25.0  1.84 (1.75 to 1.96)
32,768        30.8  2.33 (2.17 to 2.53)

Ratio: perplexity with the full history, divided by that of a restart: the same
model, which reads only the last T/2 to T tokens (T: the context). Each row is
measured on the last quarter of its length, the first row on the second half of
the context. 64 windows of the text were read; the ratios' intervals hold
together with 95%.

To repair it, type:
  ssm extend my-mamba --text book.txt --context 2048 --length 32768 -o new
Page: report/index.html"""
    )


def test_the_paragraph_starts_with_the_sentence(broken: Diagnosis) -> None:
    sentence = sentence_of(broken.readings, broken.facts)
    assert broken.verdict.paragraph.startswith(f"{sentence} ")
    assert " ".join(lines_of(broken)).startswith(sentence)


def test_a_ratio_of_one_has_three_digits() -> None:
    found = diagnosis(tables(0))
    ratios = dict.fromkeys(found.readings.ratios, Interval(1.0, 0.998, 1.01))
    said = sentence_of(replace(found.readings, ratios=ratios), found.facts)
    assert "at most 1.00 times (95% interval 0.998 to 1.01) that of a restart" in said


@pytest.mark.parametrize(
    ("changes", "sequences", "says"),
    [
        ({"stopped_by": "sequences"}, 8, "another -o and --sequences 64."),
        ({"stopped_by": "sequences"}, 32, "another -o and --sequences 128."),
        # 60% of the budget is for reading
        ({"stopped_by": "budget", "seconds": 600.0, "reading_seconds": 540.0}, 32, "another -o and --budget 60."),
        ({"stopped_by": "text"}, 8, "another -o and more text: 64 windows take about 2,097,216 tokens."),
        ({"stopped_by": "text", "limit": 63}, 8, "another -o and --sequences 64 and more text: 64 windows take about"),
    ],
)
def test_an_open_verdict_names_what_can_decide_it(changes: dict[str, Any], sequences: int, says: str) -> None:
    found = diagnosis(tables(0, fails_from(28000), sequences=sequences), **changes)
    assert found.verdict.outcome == "not decided"
    text = " ".join(lines_of(found))
    assert f"To decide it, run the same command with {says}" in " ".join(text.split())
    assert "ssm extend" not in text


@pytest.mark.parametrize(
    ("sequences", "windows", "says"),
    [
        # With all ratios within the tolerance, only 64 windows say that a model holds.
        (16, 63, "another -o and more text: 64 windows take about 2,097,216 tokens."),
        (16, 64, "another -o and --sequences 64."),
        (32, 100, "another -o and --sequences 100."),
    ],
)
def test_more_windows_than_the_text_has_are_not_advised(sequences: int, windows: int, says: str) -> None:
    found = diagnosis(tables(0, sequences=sequences), stopped_by="sequences", windows=windows)
    assert says in " ".join(" ".join(lines_of(found)).split())


def test_no_length_beyond_the_table_of_positions_is_advised() -> None:
    lines = [lines_of(diagnosis(everything(0, factor=1.0), longest=longest)) for longest in (32_768, 60_000, 99_999)]
    ends, further, twice = (" ".join(some) for some in lines)
    assert "The model cannot read further: its positions end or change." in ends
    assert "--length 60000." in further
    assert "--length 65536." in twice


@pytest.mark.parametrize(
    ("windows", "says"),
    [
        # of 32,769 tokens each; `ssm extend` takes 16 of 4,097 tokens, twice the context
        (3, "To repair it, type:"),
        (2, f"To repair it, give more text, about {16 * 4097:,} tokens, and type:"),
    ],
)
def test_a_text_too_short_for_an_extension_is_named(windows: int, says: str) -> None:
    lines = lines_of(diagnosis(everything(0, fails_from(3100)), stopped_by="text", windows=windows))
    assert says in lines


def test_a_model_that_holds_can_be_read_further() -> None:
    text = " ".join(lines_of(diagnosis(everything(0, factor=1.0), windows=128)))
    assert "There is nothing to repair." in text
    assert "--length 65536." in text
    assert "ssm extend" not in text
    less = " ".join(lines_of(diagnosis(everything(0, factor=1.0), windows=100)))
    assert "--length 65536 and more text: 64 windows take about 4,194,368 tokens." in less


def test_what_the_budget_and_the_memory_left_out_is_named() -> None:
    spent = ("needles: the budget was spent", "RULER: the budget was spent")
    missing = ("passkey: not requested (--no-passkey)", *spent, "decays: out of memory")
    text = " ".join(lines_of(diagnosis(everything(0, factor=1.0), missing=missing)))
    assert "Not measured, because the budget was spent: needles, RULER. A larger --budget helps." in text
    assert "Not measured, because the memory was too small: decays. A smaller --length" in text


def test_a_model_that_cannot_be_extended_gets_no_command() -> None:
    lines = lines_of(diagnosis(tables(0, fails_from(3100)), can_extend=False))
    assert "`ssm extend` cannot extend this model." in lines
    assert not [line for line in lines if line.startswith("  ssm extend") or "type:" in line]


def lost_from(position: int, precision: str = "float32") -> Diagnosis:
    found = tables(5)
    lost = pl.when(pl.col("position_from") >= position).then(math.nan).otherwise("loss").alias("loss")
    lost_tables = Tables(found.position_loss.with_columns(lost), found.restart_loss, found.length_class)
    return diagnosis(lost_tables, precision=precision)


def test_losses_that_are_not_numbers() -> None:
    inside, beyond = lines_of(lost_from(512, "bfloat16")), lines_of(lost_from(8192))
    assert "Check the weights." in lines_of(lost_from(512)), "it is computed in float32 already"
    assert "Check the weights, and the precision (--precision float32)." in inside
    assert "To repair it, type:" not in inside
    assert "To repair it, type:" in beyond
    assert " 4,096        13.2  0.990 (0.983 to 0.998)" in beyond
    assert "32,768   no number  no number" in beyond
    assert not {"nan", "inf"} & set(" ".join(inside + beyond).replace("(", " ").replace(")", " ").split())


def test_a_model_at_chance_gets_advice_about_the_tokenizer() -> None:
    lines = lines_of(diagnosis(tables(0), vocab_size=12))
    assert "--tokenizer" in " ".join(lines)
    assert "--sequences" not in " ".join(lines)


def test_a_failure_between_the_lengths_refers_to_the_page() -> None:
    found = diagnosis(tables(0, lambda octave: 1.0 * ((octave > 11.05) & (octave < 11.4))))
    assert "The page shows the ratio at every position." in lines_of(found)


def test_the_table_has_bits_per_byte_if_they_were_measured(broken: Diagnosis) -> None:
    losses = broken.tables.position_loss
    spelled = losses.select(
        "sequence",
        "position_from",
        "position_to",
        bytes=4 * (pl.col("position_to") - pl.col("position_from")),  # bytes a token
    )
    rows = rows_of(replace(broken.tables, spelled_bytes=spelled), broken.readings.ratios, broken.facts.context)
    head, first, *_, last = table(rows)
    assert head.endswith("  bits per byte")
    assert first.endswith("          0.969")  # log2(14.7) / 4
    assert last.endswith("           1.24")
    assert "bits" not in table([replace(row, bits=None) for row in rows])[0]
    assert table([replace(rows[0], bits=None), rows[1]])[1].endswith(" -")


@given(
    rows=st.lists(
        st.builds(
            Row, st.integers(1, 2**40), found_intervals, st.none() | found_intervals, st.none() | found_intervals
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_table_is_never_too_wide(rows: list[Row]) -> None:
    lines = table(rows)
    assert len(lines) == len(rows) + 1
    assert max(map(len, lines)) <= WIDTH


@given(words=st.lists(names, min_size=1, max_size=5))
def test_a_command_is_never_too_wide_and_keeps_its_words(words: list[str]) -> None:
    lines = command(words)
    assert max(map(len, lines)) <= WIDTH
    assert all(line.endswith("\\") for line in lines[:-1])
    assert typed(lines) == words


@pytest.mark.parametrize("letter", ["x", "'", " "])
def test_a_word_of_any_length_fits(letter: str) -> None:
    for length in range(60, 170):
        for words in (["ssm", letter * length], ["ssm", letter * length, "--text", "book.txt"]):
            assert max(map(len, command(words))) <= WIDTH, length
    assert typed(command(["ssm", letter * 169, "--text", "book.txt"])) == ["ssm", letter * 169, "--text", "book.txt"]


def test_wide_letters_count_twice() -> None:
    lines = command(["ssm", "漢" * 60])
    assert max(map(len, lines)) <= WIDTH // 2 + 3
    assert typed(lines) == ["ssm", "漢" * 60]


@given(
    found=st.builds(
        lambda failure, ratio, context: (failure, ratio, context),
        st.none() | st.builds(Interval, st.floats(1, 1e9), ends, ends),
        intervals,
        st.integers(2, 2**30),
    ),
    tolerance=st.floats(1.0001, 1e9),
    sequences=st.integers(1, 10**9),
    page=names,
    name=names,
    changes=st.fixed_dictionaries({"stopped_by": st.sampled_from(["text", "budget", "sequences", "decided"])}),
)
def test_a_diagnosis_is_never_too_wide(
    broken: Diagnosis,
    found: tuple[Interval | None, Interval, int],
    tolerance: float,
    sequences: int,
    page: str,
    name: str,
    changes: dict[str, Any],
) -> None:
    failure, ratio, context = found
    readings = replace(broken.readings, failure=failure, ratios=dict.fromkeys(broken.readings.ratios, ratio))
    facts = replace(broken.facts, tolerance=tolerance, sequences=sequences, **changes)
    given = replace(broken, readings=readings, facts=facts)
    lines = diagnosis_lines(given, Path(page), ["ssm", "extend", name, "--context", str(context)])
    assert max(map(len, lines)) <= WIDTH


def test_before_and_after_an_extension(broken: Diagnosis) -> None:
    after = diagnosis(tables(0, sequences=16))
    result = {"outcome": "repaired", "reason": "it broke and it holds now"}
    printed = {
        "With fla": "python -c 'a long line; a longer line, and one that is longer than eighty columns; the end'"
    }
    places = {"Page": Path("out/index.html"), "Model": Path("out/model")}
    lines = extension_lines(result, broken, after, places, printed)
    assert lines[0] == "Repaired: it broke and it holds now."
    assert lines[2] == "length  perplexity before  after  ratio before  after"
    inside = perplexity(first_windows(broken.tables, 16).position_loss, 1024, 2048).value
    assert lines[3].split()[:2] == ["2,048", digits(inside)]
    assert digits(inside) != digits(broken.readings.in_context.value)
    assert lines[3].endswith("-      -")
    assert float(lines[7].split()[3]) > 2
    assert float(lines[7].split()[4]) == pytest.approx(0.99, abs=0.01)
    assert "Both have read the same 16 windows of the text." in " ".join(lines)
    assert lines[lines.index("Page: out/index.html") + 1] == "Model: out/model"
    assert max(map(len, lines)) <= WIDTH
    assert (
        typed([commands(lines)["fla"]])[2]
        == "a long line; a longer line, and one that is longer than eighty columns; the end"
    )


def test_an_extension_that_trained_nothing_shows_the_diagnosis(broken: Diagnosis) -> None:
    result = {"outcome": "nothing was gained", "reason": "it holds as it is, and was not trained"}
    lines = extension_lines(result, broken, None, {"Page": Path("out/index.html")}, {})
    assert lines[0] == "Nothing was gained: it holds as it is, and was not trained."
    assert "32,768        30.8  2.33 (2.17 to 2.53)" in lines
    assert not commands(lines)
