"""Verdicts at their borders, and the text of their paragraphs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from diagnosis.fabricated import (
    LENGTH,
    bump,
    diagnosis,
    everything,
    facts,
    fails_from,
    holds,
    passkeys,
    prompts,
    states,
    tables,
)

from ssm.diagnosis.definitions import why_they_differ
from ssm.diagnosis.outcome import BREAKS, HOLDS, NOT_DECIDED, outcome_of
from ssm.diagnosis.readings import solved
from ssm.diagnosis.result import Diagnosis, Interval, Tables
from ssm.diagnosis.terminal import diagnosis_lines
from ssm.diagnosis.verdict import definition_words, extension_words, generalization_words, verdict_of, worst_position

NO_STATE = "the model has no recurrent state: the state of each layer is a cache of keys and values"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.0, 1.2, HOLDS),
        (1.0, 1.25, HOLDS),
        (1.0, 1.2501, NOT_DECIDED),
        (1.25, 1.4, NOT_DECIDED),
        (1.2501, 1.4, BREAKS),
        (-math.inf, math.inf, NOT_DECIDED),
        (1.3, math.inf, BREAKS),
    ],
)
def test_borders(low: float, high: float, expected: str) -> None:
    fine = Interval(1.0, 0.9, 1.1)
    assert (
        outcome_of({4096: fine, 8192: Interval((low + high) / 2 if high < math.inf else 1.5, low, high)}, 1.25, 64)
        == expected
    )


def test_one_position_is_enough_to_break() -> None:
    ratios = {4096: Interval(1.5, 1.4, 1.6), 8192: Interval(1.2, 1.0, 1.4), 16384: Interval(1.0, 0.9, 1.1)}
    assert outcome_of(ratios, 1.25, 4) == BREAKS


def test_a_failure_between_the_positions_that_decide() -> None:
    ratios = {4096: Interval(1.02, 1.0, 1.04), 8192: Interval(1.01, 1.0, 1.02)}
    assert outcome_of(ratios, 1.25, 64, Interval(2500.0, 2400.0, 2600.0)) == NOT_DECIDED
    assert outcome_of(ratios, 1.25, 64, Interval(2500.0, 2400.0, math.inf)) == HOLDS  # it may fail nowhere
    found = diagnosis(tables(0, lambda octave: 1.0 * ((octave > 11.05) & (octave < 11.4))))
    assert found.verdict.outcome == NOT_DECIDED
    between = "its perplexity exceeds 1.1 times that of a restart for a while, but not at the lengths that decide."
    assert between in found.verdict.paragraph
    assert "may decide it" not in found.verdict.paragraph


def test_a_nan_breaks() -> None:
    assert outcome_of({4096: Interval(math.nan, -math.inf, math.inf)}, 1.25, 4) == BREAKS


def test_it_breaks() -> None:
    found = diagnosis(everything(0, fails_from(3100)))
    assert found.verdict.outcome == BREAKS
    assert found.verdict.paragraph == (
        "The model breaks from about 3,200 tokens on (1.5 times its context; 95% interval 3,100 to 3,300): at 32,768 "
        "tokens its perplexity is 2.33 times (95% interval 2.17 to 2.53) that of a restart. A restart is the same "
        "model, which reads only the last T/2 to T tokens before each token (T: the context). 64 windows of the text "
        "were read. lg Definition 3.2 finds a failure to length-generalize. 7 of 576 heads drift: the standard "
        "deviation of a state more than doubles beyond the context. It finds 88% of the passkeys inside its context "
        "and 12% beyond. The text was given false statements, and the model was asked about them. It prefers the "
        "answer of the text in 100% of the cases inside its context and in 40% beyond. A guess does so in 20%. State "
        "Passing for 100 steps may repair it (ssm extend)."
    )


def test_it_holds() -> None:
    found = diagnosis(everything(0, holds, factor=1.0))
    assert found.verdict.outcome == HOLDS
    assert found.verdict.paragraph == (
        "The model holds up to 32,768 tokens (16 times its context): its perplexity is at most 0.990 times (95% "
        "interval 0.982 to 0.998) that of a restart, within the tolerance of 1.1. A restart is the same model, which "
        "reads only the last T/2 to T tokens before each token (T: the context). 64 windows of the text were read. lg"
        " Definition 3.2 finds no significant rise. None of 576 heads drifts. It finds 88% of the passkeys inside its"
        " context and 12% beyond. The text was given false statements, and the model was asked about them. It prefers"
        " the answer of the text in 100% of the cases inside its context and in 40% beyond. A guess does so in 20%. "
        "There is nothing to repair."
    )


@pytest.mark.parametrize(
    ("growth", "constant", "says"),
    [
        (1.0, 0, "None of 4 heads drifts."),
        (1.0, 1, "None of 3 heads drifts. The growth of 1 head was not measured: at T, the standard deviation of its "),
        (3.0, 2, "2 of 2 heads drift: the standard deviation of a state more than doubles beyond the context. The "
         "growth of 2 heads was not measured: at T, the standard deviation of their state is zero or not a number."),
        (1.0, 4, "The growth of 4 heads was not measured: at T, the standard deviation of their state is zero or not"),
    ],
)  # fmt: skip
def test_only_heads_that_have_a_growth_are_counted(growth: float, constant: int, says: str) -> None:
    table = states(np.full((1, 4), growth)).with_columns(
        std=pl.when(pl.col("head").is_between(0, constant - 1)).then(0.0).otherwise("std")
    )
    found = diagnosis(replace(tables(0, holds), state_statistics=table))
    assert f"no significant rise. {says}" in found.verdict.paragraph


@pytest.mark.parametrize(
    ("stopped_by", "windows", "limit", "more"),
    [
        ("text", 8, 63, "The text has 8 windows: more text and a larger --sequences may decide it."),
        ("text", 8, 64, "The text has 8 windows: more text may decide it."),
        ("budget", 8, 64, "The time was over: a larger --budget may decide it."),
        ("sequences", 15, 8, "The text has 15 windows: more text and a larger --sequences may decide it."),
        ("sequences", 16, 8, "The limit of windows was reached: a larger --sequences may decide it."),
    ],
)
def test_it_is_not_decided(stopped_by: str, windows: int, limit: int, more: str) -> None:
    settings = {"stopped_by": stopped_by, "windows": windows, "limit": limit}
    found = diagnosis(tables(0, fails_from(28000), sequences=8), **settings)
    assert found.verdict.outcome == NOT_DECIDED
    assert found.verdict.paragraph == (
        "Not decided up to 32,768 tokens (16 times its context): at 32,768 tokens its perplexity is 1.10 times (95% "
        "interval 1.05 to 1.15) that of a restart, and the tolerance is 1.1. A restart is the same model, which reads "
        f"only the last T/2 to T tokens before each token (T: the context). 8 windows of the text were read. {more} lg "
        "Definition 3.2 finds a failure to length-generalize."
    )


def test_attention_has_no_state_and_cannot_be_extended() -> None:
    found = diagnosis(tables(0, fails_from(2600, 1.5)), can_extend=False, missing=(f"state statistics: {NO_STATE}",))
    assert found.verdict.paragraph.endswith(
        f"64 windows of the text were read. lg Definition 3.2 finds a failure to length-generalize. Its state was not "
        f"measured: {NO_STATE}. ssm extend cannot extend this model."
    )


def test_a_model_that_recovers_gets_its_worst_and_its_last_ratio() -> None:
    paragraph = diagnosis(tables(2, bump)).verdict.paragraph
    assert paragraph.startswith("The model breaks from about 4,")
    assert ": at 8,192 tokens its perplexity is 1.67" in paragraph
    assert "At 32,768 tokens it is 1" in paragraph
    ratios = {2048: Interval(2.0, 1.2, 3.0), 4096: Interval(1.5, 1.4, 1.6), 8192: Interval(1.0, 0.9, 1.05)}
    assert worst_position(ratios, 1.1, 8192) == 4096, "the surest, not the largest"


def without_numbers_from(position: int, excess: object = holds, precision: str = "float32") -> Diagnosis:
    given = tables(5, excess)  # type: ignore[arg-type]
    lost = pl.when(pl.col("position_from") >= position).then(math.nan).otherwise("loss").alias("loss")
    lost_tables = Tables(given.position_loss.with_columns(lost), given.restart_loss, given.length_class)
    return diagnosis(lost_tables, precision=precision)


def test_words_for_losses_that_are_not_numbers() -> None:
    beyond = without_numbers_from(8192)
    assert beyond.verdict.outcome == BREAKS
    assert beyond.verdict.paragraph == "The model breaks: its loss is not a number from position 8,192 on."
    inside = without_numbers_from(512, precision="bfloat16").verdict
    assert inside.outcome == BREAKS
    assert inside.paragraph == (
        "The model breaks: its loss is not a number from position 512 on, inside its context of 2,048 tokens. Check "
        "the weights and the precision."
    )
    assert without_numbers_from(512).verdict.paragraph.endswith(" Check the weights.")
    late = without_numbers_from(16384, fails_from(3100)).verdict.paragraph
    assert late.startswith("The model breaks from about 3,")
    assert late.endswith(": its loss is not a number from position 16,384 on.")


def test_a_model_at_chance_does_not_hold() -> None:
    given = tables(0)
    assert diagnosis(given, vocab_size=20).verdict.outcome == HOLDS
    verdict = diagnosis(given, vocab_size=12).verdict
    assert verdict.outcome == NOT_DECIDED
    assert verdict.paragraph == (
        "Not decided: the model may predict no better than chance inside its context, where its perplexity is 14.7 "
        "with a vocabulary of 12 tokens. Check the tokenizer, and whether the model knows this language."
    )


@pytest.mark.parametrize(
    ("perplexity", "outcome"),
    [
        (Interval(14.7, 14.5, 14.9), HOLDS),
        (Interval(14.7, 14.4, 15.0), NOT_DECIDED),  # chance is 15 here
        (Interval(15.3, 15.2, 15.4), NOT_DECIDED),
        (Interval(7.0, 2.0, 24.0), HOLDS),  # few windows: wide, but far below chance
    ],
)
def test_a_model_that_may_be_at_chance_does_not_hold(perplexity: Interval, outcome: str) -> None:
    readings = replace(diagnosis(tables(0)).readings, in_context=perplexity)
    assert verdict_of(readings, facts(vocab_size=15)).outcome == outcome


def test_a_model_that_never_finds_a_key_says_nothing_about_length() -> None:
    found = diagnosis(everything())
    cells = tuple(replace(cell, accuracy=Interval(0.0, 0.0, 0.3)) for cell in found.readings.passkey)
    paragraph = verdict_of(replace(found.readings, passkey=cells), facts()).paragraph
    assert "It finds no passkey, inside its context or beyond. This says nothing about length." in paragraph


def test_a_key_at_the_context_counts_as_inside() -> None:
    found = tables(0, passkey=passkeys(lambda length, depth: {1024: 8, 2048: 4}.get(length, 0)))
    assert "It finds 75% of the passkeys inside its context and 0% beyond." in diagnosis(found).verdict.paragraph


def test_the_definitions_in_words() -> None:
    readings = diagnosis(tables(0)).readings
    kinds = {"strong": "strong length extension", "weak": "weak length extension", "none": "no length extension"}
    for kind, expected in (kinds | {"not decided": "not decided"}).items():
        assert extension_words(replace(readings, length_class=kind)) == expected
    assert generalization_words(readings) == "no significant rise"
    assert generalization_words(replace(readings, generalizes=False)) == "a failure to length-generalize"


@pytest.fixture(scope="module")
def found() -> dict[str, Diagnosis]:
    """By outcome."""
    return {BREAKS: diagnosis(tables(0, fails_from(3100))), HOLDS: diagnosis(tables(0))}


def with_readings(given: Diagnosis, **changes: Any) -> Diagnosis:
    readings = replace(given.readings, **changes)
    return replace(given, readings=readings, verdict=verdict_of(readings, given.facts))


@pytest.mark.parametrize("outcome", [BREAKS, HOLDS])
@pytest.mark.parametrize("generalizes", [True, False])
def test_a_definition_that_disagrees_has_a_reason(outcome: str, generalizes: bool, found: dict[str, Diagnosis]) -> None:
    """Beside it."""
    given = with_readings(found[outcome], generalizes=generalizes)
    assert given.verdict.outcome == outcome
    paragraph, differ = given.verdict.paragraph, (outcome == BREAKS) == generalizes
    assert ("compares late tokens with other, earlier tokens" in paragraph) == differ
    said = "no significant rise" if generalizes else "a failure to length-generalize"
    assert (f"lg Definition 3.2 finds {said}." in paragraph) != differ
    assert not (outcome == BREAKS and "no significant" in paragraph)
    assert ("State Passing for 100 steps may repair it" in paragraph) == (outcome == BREAKS)
    reasons = [one for one in why_they_differ(given) if one.startswith("lg")]
    assert reasons == [definition_words(outcome, given.readings)] * differ


@pytest.mark.parametrize(
    ("outcome", "kind", "reasons"),
    [(BREAKS, "weak", 1), (BREAKS, "strong", 1), (BREAKS, "none", 0), (HOLDS, "none", 1), (HOLDS, "weak", 0)],
)
def test_the_other_definition_has_a_reason_too(
    outcome: str, kind: str, reasons: int, found: dict[str, Diagnosis]
) -> None:
    given = with_readings(found[outcome], length_class=kind)
    assert len([one for one in why_they_differ(given) if one.startswith("ls Definition 2.1")]) == reasons


def test_the_verdict_names_rulers_prompts_if_any_is_solved(found: dict[str, Diagnosis]) -> None:
    cells = solved(prompts())
    paragraph = with_readings(found[HOLDS], ruler=cells).verdict.paragraph
    assert "It solves 50% of RULER's prompts inside its context and 12% beyond." in paragraph
    inside = tuple(cell for cell in cells if cell.length <= 2048)
    paragraph = with_readings(found[HOLDS], ruler=inside).verdict.paragraph
    assert "It solves 50% of RULER's prompts inside its context." in paragraph
    none = solved(prompts().with_columns(generated_all=pl.lit(False)))
    assert "RULER" not in with_readings(found[HOLDS], ruler=none).verdict.paragraph


@pytest.mark.parametrize("windows", [4, 16, 63])
def test_few_windows_never_hold(windows: int) -> None:
    ratios = {4096: Interval(1.0, 0.99, 1.01), 8192: Interval(1.0, 0.99, 1.01)}
    assert outcome_of(ratios, 1.1, windows) == NOT_DECIDED
    assert outcome_of(ratios, 1.1, 64) == HOLDS
    found = diagnosis(tables(0, sequences=windows), stopped_by="text", windows=windows)
    assert found.verdict.outcome == NOT_DECIDED
    assert "that of a restart, but it takes 64 windows to say that it holds." in found.verdict.paragraph
    assert f"{windows} windows of the text were read. The text has {windows} windows: more" in found.verdict.paragraph
    assert "nothing to repair" not in found.verdict.paragraph


def test_few_windows_may_break_with_a_warning() -> None:
    found = diagnosis(tables(0, fails_from(3100), sequences=32))
    assert found.verdict.outcome == BREAKS
    few = "32 windows of the text were read. So few windows may miss what is rare in the text."
    assert few in found.verdict.paragraph
    assert "So few" not in diagnosis(tables(0, fails_from(3100), sequences=64)).verdict.paragraph


@pytest.mark.parametrize(("document", "warned"), [(LENGTH - 1, True), (LENGTH, False), (None, False)])
def test_a_text_of_short_documents_has_a_warning(document: int | None, warned: bool) -> None:
    found = diagnosis(tables(0), document=document)
    warning = f"Half of the text is in documents of at most {LENGTH - 1:,} tokens. Older history is other documents."
    assert (warning in found.verdict.paragraph) == warned
    assert (warning in " ".join(diagnosis_lines(found, Path("index.html"), []))) == warned
