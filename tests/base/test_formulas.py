"""Formulas that are typed come out as the same formulas, in pictures and in pages."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from matplotlib.mathtext import MathTextParser

from ssm.base.formulas import FUNCTIONS, GREEK, checked, lines, marked, mathml, mathtext, plain
from ssm.specs.mixers import SPECS

CONFIG = Path(__file__).parents[2] / "config"
RECURRENCES = [line for mixer in SPECS.values() for line in mixer.taxonomy.recurrence.split(",  ")]
TYPED = [
    *RECURRENCES,
    "A_t = exp(-w) I / (exp(-w) + exp(k(x_t)))",
    "||h_t|| < 2.5, x: a * b",
    "a^b_c = a_c^b",
    "y_t = sum_s softmax_s(q_t^T k_s / sqrt(K)) v_s",
]


def bare(text: str) -> str:
    """Without what says how it is set: spaces, brackets, scripts; each sign in one spelling."""
    for old, new in (("−", "-"), ("·", "*"), ("Δ", "dt"), ("∑", "sum")):
        text = text.replace(old, new)
    for name, letter in sorted(GREEK.items()):
        text = text if name == "dt" else text.replace(letter, name)
    text = re.sub(r"\bDelta", "dt", text)
    return re.sub(r"sqrt|[\s(){}_^]", "", text)


@pytest.mark.parametrize("typed", TYPED)
def test_what_is_set_is_what_was_typed(typed: str) -> None:
    page = ElementTree.fromstring(mathml(typed))
    swapped = typed.replace("a_c^b", "a c b").replace("a^b_c", "a c b")  # MathML has what stands lower first
    assert bare("".join(page.itertext())) == bare(swapped)
    assert {element.tag for element in page.iter()} <= {
        *("math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "msub", "msup", "msubsup", "msqrt"),
    }
    assert MathTextParser("path").parse(mathtext(typed), dpi=72).width > 0


def test_letters_and_names_are_told_apart() -> None:
    assert mathml("dt_t A") == ("<math><mrow><msub><mi>Δ</mi><mrow><mi>t</mi></mrow></msub><mi>A</mi></mrow></math>")
    assert "<mi>exp</mi><mrow><mo>(</mo><mo>−</mo><mi>w</mi><mo>)</mo></mrow>" in mathml("exp(-w)")
    assert "<mtext>vectors</mtext>" in mathml("x and y vectors")
    assert mathtext("exp(dt_t A)") == r"$\mathrm{exp} (\Delta_{t} A)$"
    assert mathtext("a_t^2") == mathtext("a^2_t") == "$a_{t}^{2}$"
    assert mathml("a^2_t") == mathml("a_t^2")
    high = "<msup><mi>a</mi><mrow><mn>2</mn></mrow></msup>"
    assert mathml("a^2") == f"<math><mrow>{high}</mrow></math>"
    assert mathml("a_t^2").startswith("<math><mrow><msubsup><mi>a</mi><mrow><mi>t</mi></mrow><mrow><mn>2</mn>")
    assert mathtext("v_t^T") == r"$v_{t}^{\mathrm{T}}$"
    assert mathtext("sqrt(1 - a_t^2)") == r"$\sqrt{1 - a_{t}^{2}}$"
    assert mathtext("a^(c r_t)") == mathtext("a^{c r_t}") == "$a^{c r_{t}}$"
    assert not FUNCTIONS & set(GREEK)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("", "expected a formula at character 1"),
        ("a^", "expected a letter, a number or a bracket at character 3"),
        ("(a", "expected ')' at character 3"),
        ("a) b", "expected no bracket at character 2"),
        ("a_b_c", "expected one '_' at character 4"),
        ("a_{}", "expected something between the brackets at character 3"),
        (r"\frac{a}{b}", "expected a letter, a number or a sign at character 1"),
        ("a & <b>", "expected a letter, a number or a sign at character 3"),
        ("^2", "expected a letter, a number or a sign at character 1"),
        ("{a}", "expected no bracket at character 1"),
    ],
)
def test_what_is_no_formula_is_refused_with_its_place(typed: str, said: str) -> None:
    for setter in (mathml, mathtext, lambda text: checked(rf"so \({text}\) it is")):
        with pytest.raises(ValueError, match=r"^formula ") as error:
            setter(typed)
        assert str(error.value).endswith(said)


def test_a_formula_goes_on_in_the_next_line_outside_brackets_alone() -> None:
    for typed in TYPED:
        pieces = lines(typed)
        assert " ".join(pieces).split() == typed.split()
        assert all(piece.count("(") == piece.count(")") for piece in pieces if "=" in typed)
        assert all(mathtext(piece) for piece in pieces)
    assert lines("h_t = (a + b) c - d / e") == ["h_t = (a + b) c", "- d", "/ e"]


def test_formulas_in_prose() -> None:
    text = r"Where \(A_t = I\), <b> & (a) stay; \(x < y\) too."
    page = marked(text)
    assert page.startswith("Where <math><mrow><msub><mi>A</mi>")
    assert "&lt;b&gt; &amp; (a) stay; <math>" in page
    assert "<mo>&lt;</mo>" in page
    assert plain(text) == "Where A_t = I, <b> & (a) stay; x < y too."
    assert marked("no formula, 5$ and a_b") == plain("no formula, 5$ and a_b") == "no formula, 5$ and a_b"
    assert marked(r"an open \(x") == r"an open \(x"


def test_the_tables_of_systems_type_no_formula_outside_the_marks() -> None:
    """What looks like one in the two figures that are about formulas is between the marks."""
    for target in ("bn_appB", "ls_tab2"):
        content = yaml.safe_load((CONFIG / "figures" / f"{target}.yaml").read_text(encoding="utf-8"))
        said = [content["caption"], *content["deviations"]]
        said += [claim[key] for claim in content["claims"] for key in ("says", "paper")]
        words = [re.sub(r"\\\(.*?\\\)", "", text, flags=re.DOTALL) for text in said]
        assert not [text for text in words if re.search(r"\b[A-Za-z]_\w|\^|\w=|= ", text)]
