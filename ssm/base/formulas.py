r"""Formulas in the notation that specs write: set as mathtext in pictures and as MathML in pages.

The notation is what one would type in a mail, and reads without being set:

    h_t = exp(dt A) h_{t-1} + A^-1 (exp(dt A) - 1) B x_t

A letter is a variable; `phi`, `Delta`, `dt` (a step size, set as the papers' Delta) and the like are Greek ones; `exp`,
`sqrt`, `diag` ... are functions; every other word is a word. `_` and `^` set what follows lower or higher: a letter or
a number, a minus before it or not, or what stands in braces or brackets, which are not shown. `^T` transposes.
In prose a formula stands between \( and \).
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from ssm.base.errors import shown

GREEK = {
    **{"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eta": "η", "theta": "θ", "kappa": "κ"},
    **{"lambda": "λ", "mu": "μ", "nu": "ν", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "psi": "ψ"},
    **{"omega": "ω", "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Sigma": "Σ", "Phi": "Φ", "Psi": "Ψ"},
    **{"Omega": "Ω", "dt": "Δ"},
}
COMMANDS = {letter: f"\\{name}" for name, letter in GREEK.items() if name != "dt"} | {"∑": r"\Sigma"}
FUNCTIONS = frozenset(
    ["exp", "log", "sqrt", "diag", "softmax", "shift", "sigmoid", "tanh", "cos", "sin", "max", "min", "Re", "Im"]
)
SIGNS = {"-": "−", "*": "·"}  # the rest of OPERATORS stand for themselves
OPERATORS = "=+-*/,<>|:"
_TOKEN = re.compile(rf"\s*(?:(?P<name>[A-Za-z]+)|(?P<number>\d+(?:\.\d+)?)|(?P<sign>[{re.escape(OPERATORS)}()_^{{}}]))")
_INLINE = re.compile(r"\\\((.*?)\\\)", re.DOTALL)

Kind = Literal["variable", "function", "word", "number", "operator"]


@dataclass(frozen=True)
class Symbol:
    """A letter, a name, a number or a sign, as it is shown."""

    text: str
    kind: Kind


@dataclass(frozen=True)
class Row:
    """Things in a line; `fenced`: in brackets."""

    parts: tuple[Node, ...]
    fenced: bool = False


@dataclass(frozen=True)
class Root:
    inside: Row


@dataclass(frozen=True)
class Script:
    """What stands lower and higher at its base's right; one of the two may be missing."""

    base: Node
    low: Row | None
    high: Row | None


Node = Symbol | Row | Root | Script
THIN, WIDE = Symbol("\u2009", "word"), Symbol(" ", "word")  # spaces


def parse(text: str) -> Row:
    """A formula as a tree.

    Raises:
        ValueError: one line, with what is wrong and where.
    """
    return _Parser(text).formula()


def mathtext(text: str) -> str:
    """A formula as matplotlib sets it.

    >>> mathtext("h_t = A^2 phi")
    '$h_{t} = A^{2} \\\\phi$'

    Raises:
        ValueError: it is no formula.
    """
    return f"${_mathtext(parse(text))}$"


def mathml(text: str) -> str:
    """A formula as an element of an HTML page; what it shows is escaped.

    Raises:
        ValueError: it is no formula.
    """
    return f"<math>{_mathml(parse(text))}</math>"


def lines(text: str) -> list[str]:
    """A formula cut where it may go on in the next line: before +, - and / that stand in no brackets.

    Words, which have no =, are cut at every space.

    >>> lines("h_t = a (b + c) + d_{t-1} - e")
    ['h_t = a (b + c)', '+ d_{t-1}', '- e']
    >>> lines("gates i_t and r_t")
    ['gates', 'i_t', 'and', 'r_t']
    """
    if "=" not in text:
        return text.split()
    found, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "({") - (sign in ")}")
        if sign in "+-/" and depth == 0 and text[place - 1 : place] == " ":
            found.append(text[start:place].strip())
            start = place
    return [*found, text[start:].strip()]


def prose(text: str, words: Callable[[str], str], formula: Callable[[str], str]) -> str:
    r"""Prose with formulas between \( and \), put together from what `words` and `formula` make of its pieces."""
    pieces = _INLINE.split(text)
    return "".join(formula(piece) if place % 2 else words(piece) for place, piece in enumerate(pieces))


def plain(text: str) -> str:
    r"""Prose with its formulas as they were typed.

    >>> plain(r"with \(A_t = I\), for good")
    'with A_t = I, for good'
    """
    return prose(text, str, str)


def marked(text: str) -> str:
    """Prose as HTML: words escaped, formulas as MathML.

    Raises:
        ValueError: what stands between the marks is no formula.
    """
    return prose(text, html.escape, mathml)


def checked(text: str) -> str:
    """The prose itself.

    Raises:
        ValueError: what stands between the marks is no formula; one line.
    """
    marked(text)
    return text


class _Parser:
    """One pass from left to right, one token ahead."""

    def __init__(self, text: str):
        self.text = " ".join(text.split())
        self.tokens = [*self._read(), ("end", "", len(self.text))]
        self.place = 0

    def formula(self) -> Row:
        row = self._row("")
        if not row.parts:
            raise self._wrong("a formula", len(self.text))
        return row

    def _read(self) -> Iterator[tuple[str, str, int]]:
        place = 0
        while place < len(self.text):
            found = _TOKEN.match(self.text, place)
            if found is None:
                raise self._wrong("a letter, a number or a sign", place + (self.text[place] == " "))
            yield str(found.lastgroup), found[str(found.lastgroup)], found.start(str(found.lastgroup))
            place = found.end()

    def _row(self, end: str) -> Row:
        """Up to the sign `end`, which is taken too; "": to the end of all."""
        parts: list[Node] = []
        while True:
            kind, text, place = self.tokens[self.place]
            if text == end and kind in ("sign", "end"):
                self.place += bool(end)
                return Row(tuple(_spaced(parts)))
            if kind == "end" or text in (")", "}", "{"):
                raise self._wrong(f"'{end}'" if end else "no bracket", place)
            parts.append(self._scripted())

    def _scripted(self) -> Node:
        base = self._one()
        scripts: dict[str, Row] = {}
        while self.tokens[self.place][1] in ("_", "^"):
            _, sign, place = self.tokens[self.place]
            if sign in scripts:
                raise self._wrong(f"one '{sign}'", place)
            self.place += 1
            scripts[sign] = self._script()
        return Script(base, scripts.get("_"), scripts.get("^")) if scripts else base

    def _script(self) -> Row:
        kind, text, place = self.tokens[self.place]
        if text in ("{", "("):
            self.place += 1
            inside = self._row("}" if text == "{" else ")")
            if not inside.parts:
                raise self._wrong("something between the brackets", place)
            return inside
        if text == "-":
            self.place += 1
            return Row((Symbol("−", "operator"), *self._script().parts))
        if text == "T":
            self.place += 1
            return Row((Symbol("T", "word"),))
        if kind not in ("name", "number"):
            raise self._wrong("a letter, a number or a bracket", place)
        return Row((self._one(),))

    def _one(self) -> Node:
        kind, text, place = self.tokens[self.place]
        self.place += 1
        if kind == "number":
            return Symbol(text, "number")
        if kind == "sign" and text == "(":
            return Row(self._row(")").parts, fenced=True)
        if kind == "sign" and text in OPERATORS:
            return Symbol(SIGNS.get(text, text), "operator")
        if kind != "name":
            raise self._wrong("a letter, a number or a sign", place)
        if text == "sqrt" and self.tokens[self.place][1] == "(":
            self.place += 1
            return Root(self._row(")"))
        if text == "sum":
            return Symbol("∑", "function")
        if text in FUNCTIONS:
            return Symbol(text, "function")
        if text in GREEK or len(text) == 1:
            return Symbol(GREEK.get(text, text), "variable")
        return Symbol(text, "word")

    def _wrong(self, expected: str, place: int) -> ValueError:
        return ValueError(f"formula {shown(self.text)}: expected {expected} at character {place + 1}")


def _spaced(parts: list[Node]) -> Iterator[Node]:
    """The parts with the spaces that multiplication and words need; operators bring their own."""
    for place, part in enumerate(parts):
        before = _core(parts[place - 1]) if place else None
        core = _core(part)
        if before is not None and "operator" not in (_kind(before), _kind(core)):
            if _is_aside(core) or "word" in (_kind(before), _kind(core)):
                yield WIDE
            elif _kind(core) in ("function", "number") or (_kind(before) == "function" and not _fenced(core)):
                yield THIN
        yield part


def _core(node: Node) -> Node:
    return node.base if isinstance(node, Script) else node


def _kind(node: Node) -> str:
    return node.kind if isinstance(node, Symbol) else ""


def _fenced(node: Node) -> bool:
    return isinstance(node, Row) and node.fenced


def _is_aside(node: Node) -> bool:
    """Brackets that begin with a division: what is divided stands before them."""
    return isinstance(node, Row) and node.fenced and node.parts[:1] == (Symbol("/", "operator"),)


def _mathtext(node: Node) -> str:
    if isinstance(node, Row):
        inside = " ".join(map(_mathtext, node.parts))
        return f"({inside})" if node.fenced else inside
    if isinstance(node, Root):
        return rf"\sqrt{{{_mathtext(node.inside)}}}"
    if isinstance(node, Script):
        low, high = (f"{sign}{{{_mathtext(row)}}}" if row else "" for sign, row in (("_", node.low), ("^", node.high)))
        return f"{_mathtext(node.base)}{low}{high}"
    if node in (THIN, WIDE):
        return r"\," if node is THIN else r"\ "
    if node.kind in ("function", "word") and node.text not in COMMANDS:
        return rf"\mathrm{{{node.text}}}"
    return COMMANDS.get(node.text, {"−": "-", "·": r"\cdot"}.get(node.text, node.text))


def _mathml(node: Node) -> str:
    if isinstance(node, Row):
        inside = "".join(map(_mathml, node.parts))
        return f"<mrow>{'<mo>(</mo>' * node.fenced}{inside}{'<mo>)</mo>' * node.fenced}</mrow>"
    if isinstance(node, Root):
        return f"<msqrt>{_mathml(node.inside)}</msqrt>"
    if isinstance(node, Script):
        scripts = [row for row in (node.low, node.high) if row is not None]
        tag = "msubsup" if len(scripts) == 2 else "msub" if node.low is not None else "msup"
        return f"<{tag}>{_mathml(node.base)}{''.join(map(_mathml, scripts))}</{tag}>"
    if node in (THIN, WIDE):
        return f'<mspace width="{0.17 if node is THIN else 0.35}em"></mspace>'
    text = html.escape(node.text)
    if node.kind == "variable" or (node.kind == "function" and node.text != "∑"):
        return f"<mi>{text}</mi>"  # a letter is set in italics, a longer name upright
    return {"word": f"<mtext>{text}</mtext>", "number": f"<mn>{text}</mn>"}.get(node.kind, f"<mo>{text}</mo>")
