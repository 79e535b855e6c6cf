r"""Prose with LaTeX formulas between dollar signs, as HTML and as plain text.

A dollar sign opens a formula if no space follows it. It closes one if no space precedes it and no digit follows it.
The formulas use the LaTeX that both latex2mathml and matplotlib's mathtext read.
"""

from __future__ import annotations

import html
import re
from xml.etree.ElementTree import tostring

from ssm.base.errors import shown
from ssm.base.lazy import converter, symbols_parser

_FORMULA = re.compile(r"\$(?!\s)([^$]*[^$\s])\$(?!\d)")
_UPRIGHT = re.compile(r"\\(?:mathrm|operatorname|text)\{([^{}]*)\}")
_SPACE = re.compile(r"\s*\\(?:[,:; ]|q?quad\b)\s*")
_COMMAND = re.compile(r"\\[A-Za-z]+")


def marked(text: str) -> str:
    """Prose as HTML: words escaped, formulas as MathML.

    Raises:
        ValueError: a formula is not valid LaTeX; one line.
    """
    pieces = _FORMULA.split(text)  # words and formulas in turn
    return "".join(_mathml(piece) if place % 2 else html.escape(piece) for place, piece in enumerate(pieces))


def plain(text: str) -> str:
    r"""Prose with its formulas as Unicode text: commands become their symbols, or else their names.

    >>> plain(r"with $A_t = \exp(\Delta_t A)$, for good")
    'with A_t = exp(Δ_t A), for good'
    """
    return _FORMULA.sub(lambda found: _unicode(found[1]), text)


def checked(text: str) -> str:
    """The prose itself.

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
    try:
        math = converter.convert_to_element(formula)
    except Exception as error:  # latex2mathml's errors have no base class of their own
        raise ValueError(f"formula {shown(formula)}: not valid LaTeX ({type(error).__name__})") from error
    for element in math.iter():
        element.text = html.unescape(element.text or "")  # it holds "&#x00394;", and tostring escapes once more
        if element.text.startswith("\\"):
            raise ValueError(f"formula {shown(formula)}: unknown command {element.text}")
    return tostring(math, encoding="unicode")


def _unicode(formula: str) -> str:
    without_spaces = _SPACE.sub(" ", _UPRIGHT.sub(r"\1", formula))
    return _COMMAND.sub(lambda found: _symbol(found[0]), without_spaces)


def _symbol(command: str) -> str:
    code_point = symbols_parser.convert_symbol(command)  # hexadecimal digits
    return chr(int(code_point, 16)) if code_point else command[1:]
