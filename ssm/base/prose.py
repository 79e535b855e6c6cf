r"""Prose with LaTeX formulas between dollar signs, as HTML and as plain text.

A dollar sign opens a formula if no space follows it. It closes one if no space precedes it and no digit follows it.
The formulas use the LaTeX that both latex2mathml and matplotlib's mathtext read: COMMANDS, with all their arguments.
"""

from __future__ import annotations

import html
import re
from xml.etree.ElementTree import tostring

from ssm.base.errors import shown
from ssm.base.lazy import converter, symbols_parser

_FORMULA = re.compile(r"\$(?!\s)([^$]*[^$\s])\$(?!\d)")
_CODE = re.compile(r"`([^`]+)`")
_UPRIGHT = re.compile(r"\\(?:mathrm|operatorname|text)\{([^{}]*)\}")
_SPACE = re.compile(r"\s*\\(?:[,:; ]|q?quad\b)\s*")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_ANY_COMMAND = re.compile(r"\\([A-Za-z]+|.)")
_LETTERS = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi rho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell Re Im infty "
    "partial nabla"
)
_OPERATORS = (
    "cdot times div pm mp ast star circ odot oplus otimes leq geq neq ne ll gg approx sim simeq equiv propto in "
    "notin subset subseteq cup cap to rightarrow leftarrow leftrightarrow Rightarrow mapsto forall exists sum prod int "
    "top perp mid parallel langle rangle lfloor rfloor lceil rceil ldots cdots dots vdots"
)
_FUNCTIONS = "exp log ln min max sup inf lim det dim sin cos tan sinh cosh tanh arg Pr"
_WITH_ARGUMENT = "sqrt mathrm mathbf mathit mathcal mathbb operatorname text hat bar tilde vec dot ddot overline"
_OTHERS = "frac left right quad qquad , : ; ! { } | % # _"
COMMANDS = frozenset(" ".join((_LETTERS, _OPERATORS, _FUNCTIONS, _WITH_ARGUMENT, _OTHERS)).split()) | {" "}
_GROUP = re.compile(r"\{([^{}]*)\}")
_FULL, _EMPTY = "\0", "\1"  # placeholders for a group in braces
_INCOMPLETE = re.compile(
    rf"\\(frac\b(?!\s*{_FULL}\s*{_FULL})|(?:{'|'.join(_WITH_ARGUMENT.split())})\b(?!\s*(?:\[[^\]]*\])?{_FULL})"
    r"|(?:left|right)\b(?!\s*(?:[][()|./<>]|\\(?:[{}|]|[lr](?:angle|floor|ceil)\b))))"
)
_BARE = re.compile(r"(?<!\\)[%#]")


def marked(text: str) -> str:
    """Prose as HTML: words escaped, words between backticks as code, formulas as MathML.

    Raises:
        ValueError: a formula is not valid LaTeX; one line.
    """
    pieces = _FORMULA.split(text)  # words and formulas in turn
    return "".join(
        _mathml(piece) if place % 2 else _CODE.sub(r"<code>\1</code>", html.escape(piece))
        for place, piece in enumerate(pieces)
    )


def plain(text: str) -> str:
    r"""Prose with its formulas as Unicode text: commands become their symbols, or else their names.

    >>> plain(r"with $A_t = \exp(\Delta_t A)$, for good")
    'with A_t = exp(Δ_t A), for good'
    """
    return _FORMULA.sub(lambda found: _unicode(found[1]), text)


def checked(text: str) -> str:
    """Return the text unchanged, if its formulas are valid.

    Raises:
        ValueError: a formula is not valid LaTeX; one line.
    """
    marked(text)
    return text


def _mathml(formula: str) -> str:
    """A formula as the text of a MathML element.

    Raises:
        ValueError: it is not valid LaTeX; one line.
    """
    for command in _ANY_COMMAND.findall(formula):
        if command not in COMMANDS:
            raise ValueError(f"formula {shown(formula)}: unknown command \\{command}")
    _check_groups(formula)
    try:
        math = converter.convert_to_element(formula)
    except Exception as error:  # latex2mathml's errors have no base class of their own
        raise ValueError(f"formula {shown(formula)}: not valid LaTeX ({type(error).__name__})") from error
    for element in math.iter():
        element.text = html.unescape(element.text or "")  # contains "&#x00394;", which tostring would escape again
    return tostring(math, encoding="unicode")


def _check_groups(formula: str) -> None:
    """Check that braces are in pairs and every command has its arguments. mathtext needs that; latex2mathml does not.

    Raises:
        ValueError: one line that says what is wrong.
    """

    def closed(group: re.Match[str]) -> str:
        check(group[1])
        return _FULL if group[1].strip() else _EMPTY

    def check(text: str) -> None:
        found = _INCOMPLETE.search(text)
        if found or _BARE.search(text):
            what = f"\\{found[1]} lacks an argument in braces" if found else "write \\% and \\#"
            raise ValueError(f"formula {shown(formula)}: {what}")

    text, before = formula.replace(r"\{", r"\|").replace(r"\}", r"\|"), ""
    while text != before:
        text, before = _GROUP.sub(closed, text), text
    check(text)
    if "{" in text or "}" in text:
        raise ValueError(f"formula {shown(formula)}: a brace has no partner")


def _unicode(formula: str) -> str:
    without_spaces = _SPACE.sub(" ", _UPRIGHT.sub(r"\1", formula))
    return _COMMAND.sub(lambda found: _symbol(found[0]), without_spaces)


def _symbol(command: str) -> str:
    code_point = symbols_parser.convert_symbol(command)  # hexadecimal digits
    return chr(int(code_point, 16)) if code_point else command[1:]
