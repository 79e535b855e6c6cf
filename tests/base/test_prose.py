"""Formulas in prose: as MathML in pages, as Unicode elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from matplotlib.mathtext import MathTextParser

from ssm.base.prose import COMMANDS, checked, marked, plain
from ssm.specs.mixers import SPECS

CONFIG = Path(__file__).parents[2] / "config"
MATH = "{http://www.w3.org/1998/Math/MathML}"


def elements(text: str) -> list[tuple[str, str]]:
    """Tag and text of the leaves of prose as HTML, in order."""
    page = ElementTree.fromstring(f"<p>{marked(text)}</p>")
    return [(leaf.tag.removeprefix(MATH), leaf.text or "") for leaf in page.iter() if not len(leaf)]


def test_formulas_in_prose() -> None:
    text = r"Where $A_t = I$, <b> & (a) stay; $x < \Delta y$ too."
    page = marked(text)
    assert page.startswith("Where <math")
    assert "</math>, &lt;b&gt; &amp; (a) stay; <math" in page
    assert elements(text) == [
        *(("mi", "A"), ("mi", "t"), ("mo", "="), ("mi", "I")),
        *(("mi", "x"), ("mo", "<"), ("mi", "Δ"), ("mi", "y")),
    ]
    assert plain(text) == "Where A_t = I, <b> & (a) stay; x < Δ y too."


def test_words_between_backticks_are_code_on_a_page() -> None:
    assert marked("At `a<b` and `c`, not `d.") == "At <code>a&lt;b</code> and <code>c</code>, not `d."


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        (r"h_t = A_t h_{t-1} + \Delta_t b_t", "h_t = A_t h_{t-1} + Δ_t b_t"),
        (r"A_t = \mathrm{diag}(\alpha(x_t))", "A_t = diag(α(x_t))"),
        (r"\sum_k c_k e^{-k s}", "∑_k c_k e^{-k s}"),
        (r"W_C^\top W_B", "W_C^⊤ W_B"),
        (r"A_{\max} - \gamma \, I", "A_{max} - γ I"),
        (r"\exp(-w) \odot \sqrt{K}", "exp(-w) ⊙ √{K}"),
    ],
)
def test_a_formula_as_unicode(formula: str, shown: str) -> None:
    assert plain(f"so ${formula}$.") == f"so {shown}."


@pytest.mark.parametrize("text", ["5$ and a_b", "from 5$ to 6$", "$5 and $6", "$5 or$6", "an open $x", "$ a $"])
def test_dollars_that_are_no_formula(text: str) -> None:
    assert marked(text) == plain(text) == text


@pytest.mark.parametrize("formula", [r"\text{<script>bad()</script>}", "<script>", r"a & <b>", r"\text{&lt;b&gt;}"])
def test_what_a_formula_shows_is_escaped(formula: str) -> None:
    page = marked(f"${formula}$")
    assert "<script" not in page
    assert "<b>" not in page
    ElementTree.fromstring(page)


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        (r"a + \Dleta", r"unknown command \Dleta"),
        ("a^", "not valid LaTeX"),
        ("a_b_c", "not valid LaTeX"),
        (r"\left( a", "not valid LaTeX"),
        *((formula, "lacks an argument") for formula in (r"\frac{a}", r"\frac{a}b", r"\sqrt{}", r"\mathrm a")),
        (r"b_{\frac{a}{\sqrt{}}}", r"\sqrt lacks an argument"),
        (r"\left a \right b", r"\left lacks an argument"),
        (r"\href{https://a.b}{c}", r"unknown command \href"),
        (r"a \\ b", r"unknown command \\"),
        ("a}", "a brace has no partner"),
        ("{a", "a brace has no partner"),
        ("5 % a", r"write \% and \#"),
    ],
)
def test_an_invalid_formula_is_refused(formula: str, said: str) -> None:
    for function in (marked, checked):
        with pytest.raises(ValueError, match=r"^formula ") as error:
            function(f"so ${formula}$ it is")
        assert said in str(error.value)
        assert "\n" not in str(error.value)


FORMULAS = [
    *(r"a_{t}^{2}", r"\frac{a_{i}}{\sqrt[3]{b}}", r"\left\{ a \right\rangle", r"5\%", r"\text{where } a''", "{a}_b"),
    *(rf"a \{name}{{b}}{{c}}" for name in sorted(COMMANDS - {"left", "right"})),
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_what_a_page_shows_a_picture_shows(formula: str) -> None:
    """matplotlib's mathtext draws what is accepted; specs do not import it."""
    assert marked(f"${formula}$").startswith("<math")
    MathTextParser("path").parse(f"${formula}$")


def test_every_recurrence_is_valid() -> None:
    for mixer in SPECS.values():
        for line in mixer.taxonomy.recurrence:
            assert checked(line) == line
            assert not re.search(r"[\\$]", plain(line))


def test_the_tables_of_systems_have_no_formula_outside_the_marks() -> None:
    """What looks like one in the two figures that are about formulas is between dollar signs."""
    for target in ("bn_appB", "ls_tab2"):
        content = yaml.safe_load((CONFIG / "figures" / f"{target}.yaml").read_text(encoding="utf-8"))
        said = [content["caption"], *content["deviations"]]
        said += [claim[key] for claim in content["claims"] for key in ("says", "paper")]
        words = [re.sub(r"\$[^$]*\$", "", text) for text in said]
        assert not [text for text in words if re.search(r"\b[A-Za-z]_\w|\^|\w=|= ", text)]
