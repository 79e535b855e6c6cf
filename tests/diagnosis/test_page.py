"""The page is valid, loads nothing, and shows what the diagnosis found."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from diagnosis.fabricated import Tables, diagnosis, everything, fails_from, tables
from html_page import Page, squeezed

from ssm.diagnosis.definitions import BY_POSITION, ON_AVERAGE, PAIRED
from ssm.diagnosis.outcome import extend_words
from ssm.diagnosis.page import build_page
from ssm.diagnosis.result import EffectiveLength, Extension, Interval, Memory
from ssm.specs.diagnosis import WHY_TOLERANCE

pytestmark = pytest.mark.usefixtures("without_plots")
EXTEND = ["ssm", "extend", "my-mamba"]


def read(text: str) -> tuple[Page, str]:
    page = Page(text)
    return page, squeezed(page.text)


def test_the_page_loads_nothing_and_links_to_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # with its plots
    text = build_page(diagnosis(everything(0, fails_from(3100))))
    page, _ = read(text)
    assert len(page.ids) == len(set(page.ids))
    assert not page.tags & {"script", "iframe", "link", "object", "embed"}
    assert page.loads
    assert all(load.startswith("data:image/svg+xml;base64,") for load in page.loads)
    assert not re.search(r"@import|url\((?!#)", text)
    inside = [href[1:] for href in page.links if href.startswith("#")]
    assert set(inside) <= set(page.ids)
    assert [href for href in page.links if not href.startswith("#")] == [
        "diagnosis.json",
        *(
            f"tables/{name}.parquet"
            for name in (
                *("position_loss", "restart_loss", "length_class"),
                *("effective_remembrance", "state_statistics", "passkey", "accuracy"),
            )
        ),
    ]


def test_the_page_shows_verdict_numbers_and_facts() -> None:
    found = diagnosis(everything(0, fails_from(3100)))
    _, text = read(build_page(found, extend=extend_words(found.facts, "my model", ["book.txt", "a b"])))
    assert found.verdict.paragraph in text
    assert text.index("✗ Breaks") < text.index(found.verdict.paragraph) < text.index("How far?")
    order = ["How far?", "Why?", "Can it still recall?", "What does it cost?", "How this was measured"]
    assert [text.index(name) for name in order] == sorted(text.index(name) for name in order)
    for shown in (
        "24,576 to 32,768",
        "; in the last quarter of 32,768 tokens: ",
        "2.33 (2.17 to 2.53)",
        "7 of 576 heads",
        "0.300 (0.282 to 0.318)",
        "78 MB per sequence",
        "6 min 13 s",
        "0123456789abcdef",
        "abababababababab…",
        "until the verdict was decided",
        "with documents shorter than a window, the full history is mostly other documents",
        "Next: ssm extend 'my model' --text book.txt 'a b' --context 2048 --length 32768 -o extended",
    ):
        assert shown in text, shown


def test_costs_that_are_not_known_are_left_out() -> None:
    known, unknown = diagnosis(tables(0)), diagnosis(tables(0), state_bytes=None, peak_bytes=None)
    for found, shown in ((known, True), (unknown, False)):
        _, text = read(build_page(found))
        assert all((name in text) == shown for name in ("State after 2,048 tokens", "Largest memory in use"))


def test_the_page_explains_how_long_the_states_remember() -> None:
    found = diagnosis(everything(0, fails_from(3100)))
    memory = Memory(128, Interval(0.4, 0.35, 0.45), 32768, Interval(0.05, 0.0, 0.1), Interval(0.9, 0.85, 0.95))
    _, text = read(build_page(replace(found, readings=replace(found.readings, memory=memory))))
    assert "40% (35% to 45%) of the states see only the recent past: 128 tokens after" in text
    left = "with their decays within the context, more than 37% would be left after 32,768 tokens"
    assert f"5% (0% to 10%) never forget: {left}" in text
    assert "90% (85% to 95%) cannot select" in text


def test_the_page_explains_why_a_definition_disagrees_with_the_verdict() -> None:
    """Here lg Definition 3.2 finds no significant rise, but the paired ratio does."""
    given = everything(0, fails_from(3100))
    row = {"class": "not decided", "generalizes": True, "excess": math.log(1.3), "excess_error": 0.21}
    _, text = read(build_page(diagnosis(replace(given, length_class=given.length_class.with_columns(**lits(row))))))
    assert "✗ Breaks" in text
    assert "no significant failure" not in text
    assert text.count("lg Definition 3.2 does not show this failure. It compares late tokens with other, earlier") == 2
    assert (
        "No significant rise. Where the rise is most certain, it has 1.3 times the least perplexity inside the "
        "context (standard error 21%)."
    ) in text
    assert f"{PAIRED} A rise up to 1.1 times. Breaks." in text
    assert text.index(PAIRED) < text.index(BY_POSITION) < text.index(ON_AVERAGE)
    assert "No rise (strong), or less than 2% from one length to its double (weak). Not decided." in text
    assert WHY_TOLERANCE in text
    assert "all intervals of 64 windows or more" in text


def lits(row: dict[str, Any]) -> dict[str, pl.Expr]:
    return {name: pl.lit(value) for name, value in row.items()}


def test_the_command_to_extend_asks_for_a_length_that_the_text_has() -> None:
    """`ssm extend` needs 16 windows of text."""
    found = diagnosis(tables(0, fails_from(3100), sequences=10), windows=10)
    _, text = read(build_page(found, extend=extend_words(found.facts, "m", ["book.txt"])))
    assert "--context 2048 --length 16384 -o extended" in text


def test_a_model_that_holds_gets_no_command_to_extend_it() -> None:
    _, text = read(build_page(diagnosis(everything(0, factor=1.0)), extend=EXTEND))
    assert "✓ Holds" in text
    assert "ssm extend" not in text
    assert "What happens inside?" in text


def test_ratios_of_a_model_at_chance_decide_nothing() -> None:
    given = tables(0)
    assert "✓ Holds" in read(build_page(diagnosis(given, vocab_size=20)))[1]
    assert "✓" not in read(build_page(diagnosis(given, vocab_size=12)))[1]


def test_the_page_shows_bits_effective_length_and_heads() -> None:
    given = everything(0, fails_from(3100))
    found = diagnosis(given)
    more = {
        "in_context_bits": Interval(0.912, 0.9, 0.93),
        "far_bits": Interval(1.25, 1.2, 1.3),
        "effective_length": EffectiveLength(256, 512, {256: Interval(1.02, 1.01, 1.03)}),
    }
    page = build_page(replace(found, readings=replace(found.readings, **more)))
    _, text = read(page)
    assert "In bits per byte of text, which do not depend on the tokenizer: 0.912 (0.900 to 0.930) and 1.25" in text
    assert "Effective length. Text more than 256 tokens back still lowers its loss. From 512 tokens on, reading" in text
    assert "7 of 576 heads drift: 1 in layer 0, 1 in layer 3," in text
    assert "bits per byte" not in read(build_page(found))[1]


def test_the_page_counts_only_heads_that_have_a_growth() -> None:
    found = diagnosis(everything(0, fails_from(3100)))
    drift = found.readings.drift
    assert drift is not None
    changed = {heads: replace(found.readings, drift=replace(drift, unmeasured=heads)) for heads in (6, 576)}
    some, none = (read(build_page(replace(found, readings=readings), found))[1] for readings in changed.values())
    why = "was not measured: at T, the standard deviation of their state is zero or not a number."
    assert "7 of 570 heads drift after the extension: 1 in layer 0, 1 in layer 3," in some
    assert re.search(rf"1 in layer \d+\. The growth of 6 heads {why}", some)
    assert "Heads that drift 7 of 576 7 of 570" in some
    assert f"The growth of 576 heads {why}" in none
    assert "Heads that drift 7 of 576 –" in none
    assert "of 0 heads" not in none


def test_before_and_after_have_bits_and_effective_length() -> None:
    found = diagnosis(tables(0))
    length = EffectiveLength(256, None, {256: Interval(1.02, 1.01, 1.03)})
    more = {"far_bits": Interval(1.25, 1.2, 1.3), "effective_length": length}
    _, text = read(build_page(replace(found, readings=replace(found.readings, **more)), found))
    assert re.search(r"Bits per byte in the last quarter of 32,768 – 1\.25 \(1\.20 to 1\.30\)", text)
    assert "Effective length – 256 to – tokens" in text


def test_the_page_gives_the_reason_for_everything_that_is_missing() -> None:
    missing = (
        "state statistics: it keeps keys and values",
        "Effective Remembrance: the budget was spent",
        "passkey: no tokens for digits",
        "needles: a prompt alone takes 200 tokens",
        "effective length: the budget was spent",
        "vt: length 64: too short",
    )
    page, text = read(build_page(diagnosis(tables(0), missing=missing)))
    assert "The state was not measured: it keeps keys and values." in text
    assert "Effective Remembrance was not measured: the budget was spent." in text
    assert "The passkey test was not made: no tokens for digits." in text
    assert "The needle test was not made: a prompt alone takes 200 tokens." in text
    assert "How far back text lowers the loss was not measured: the budget was spent." in text
    assert "vt was not measured: length 64: too short." in text
    assert "tables/passkey.parquet" not in page.links


def test_a_long_list_of_files_is_shortened() -> None:
    _, text = read(build_page(diagnosis(tables(0), text=", ".join(f"{number}.txt" for number in range(40)))))
    assert "windows of 0.txt, 1.txt, 2.txt and 37 more." in text
    assert "9.txt and 30 more (SHA-256" in text


def test_text_is_escaped() -> None:
    page = build_page(diagnosis(tables(0), title="<b>me & co", text="<i>.txt"))
    assert "<b>" not in page
    assert "<i>" not in page
    assert "<b>me & co" in Page(page).text


@pytest.mark.parametrize("position", [0, 8192])
def test_losses_that_are_not_numbers(position: int) -> None:
    given = everything(0)
    lost = pl.when(pl.col("position_from") >= position).then(math.nan).otherwise("loss").alias("loss")
    found = diagnosis(Tables(given.position_loss.with_columns(lost), given.restart_loss, given.length_class))
    _, text = read(build_page(found, extend=EXTEND))
    assert "not a number" in text
    assert ("Next: ssm extend" in text) == (position == 8192), "no extension repairs a loss inside the context"
    assert not re.search(r"\b(nan|inf)\b", text)


def test_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # with its plots
    before = diagnosis(everything(0, fails_from(3100)))
    after = diagnosis(everything(0, factor=1.3))
    extra = Extension(
        "repaired",
        "it broke and it holds now",
        True,
        (("Steps", "75 of 100"),),
        control=before,
        written="out/model",
        held_out="held out: the last 9 tokens",
        links=(("result.json", "result.json"),),
    )
    page, text = read(build_page(after, before, extra))
    assert len(page.ids) == len(set(page.ids))
    assert text.index("✓ Repaired") < text.index("It broke and it holds now.") < text.index("Before: ✗ Breaks")
    assert "After: ✓ Holds" in text
    assert "Control: ✗ Breaks" in text
    assert before.verdict.paragraph in text
    assert after.verdict.paragraph in text
    assert "The model is in out/model, in the format of the original." in text
    assert "Held out: the last 9 tokens." in text
    assert "Steps 75 of 100" in text
    assert "7 of 576" in text
    assert "0 of 576" in text
    assert [href for href in page.links if not href.startswith("#")] == ["result.json"]
    row = text[text.index("Perplexity in the last quarter of 32,768") :]
    assert re.match(
        r"Perplexity in the last quarter of 32,768 "
        r"30\.8 \(.*?\) 13\.\d \(.*?\) 0\.4\d\d \(.*?\) 1\.000 \(1\.000 to 1\.000\)",
        row,
    )


def test_before_and_after_use_the_same_windows() -> None:
    before, after = diagnosis(tables(3, fails_from(3100))), diagnosis(tables(3, sequences=16))
    _, text = read(build_page(after, before))
    inside = re.search(r"context, 1,024 to 2,048 (\S+) \(.*?\) (\S+) \(.*?\) (\S+) \(", text)
    assert inside is not None
    earlier, later, factor = map(float, inside.groups())
    assert later / earlier == pytest.approx(factor, abs=0.01)
    assert "the 16 windows that all have read" in text
    assert re.search(r"Fails from 3,\d00 tokens – –", text)  # 16 windows do not say that it fails nowhere


def test_nothing_was_gained() -> None:
    before = diagnosis(everything(0, factor=1.0))
    _, text = read(build_page(before, None, Extension("nothing was gained", "it holds as it is", False)))
    assert "? Nothing was gained" in text
    assert "It holds as it is." in text
    assert before.verdict.paragraph in text
    assert "Before and after" not in text
    assert "model is in" not in text
    kept = Extension("not decided", "it is open", False, written="candidate")
    _, text = read(build_page(before, None, kept))
    assert "The changed model is in candidate, in the format of the original; it is not proven better." in text


def test_without_a_control_there_is_no_column_for_it() -> None:
    before, after = diagnosis(everything(0, fails_from(3100))), diagnosis(everything(0))
    extra = Extension("repaired", "it holds now", True)
    assert "Control" not in build_page(after, before, extra)
    assert "Control / before" in build_page(after, before, replace(extra, control=before))
