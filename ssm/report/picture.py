"""A figure's SVG, made ready to stand inside the page: what matplotlib writes is let in, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree.ElementTree import Element, TreeBuilder, register_namespace, tostring
from xml.parsers.expat import ExpatError, ParserCreate

from markupsafe import Markup

from ssm.base.errors import TableError
from ssm.figures.colors import GRID, INK

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ENLARGED = 1.5  # CSS pixels a picture may take for each of its points
DEEPEST = 64  # elements inside each other; matplotlib's are below 10

# Everything is matched as a whole, case and all.
_NUMBERS = r"[-+0-9.eE,%\s]*(?:px|pt)?"
_NAME = r"[\w.:-]+"
_HERE = rf"url\(#{_NAME}\)"  # a reference inside the picture
_PAINT = rf"#[0-9A-Fa-f]{{3,8}}|[A-Za-z]*|rgba?\({_NUMBERS}\)|{_HERE}"
_MOVES = rf"(?:(?:matrix|translate|scale|rotate|skewX|skewY)\({_NUMBERS}\)[\s,]*)*"
_WORDS = r"[A-Za-z\s-]*"
_FONTS = r"""[\w\s.,%/'"-]*"""
PROPERTIES = {  # of attributes and of styles alike
    **dict.fromkeys(("fill", "stroke", "stop-color"), _PAINT),
    **dict.fromkeys(("fill-opacity", "stroke-opacity", "stop-opacity", "opacity", "stroke-width"), _NUMBERS),
    **dict.fromkeys(("stroke-dasharray", "stroke-dashoffset", "stroke-miterlimit"), rf"{_NUMBERS}|none"),
    **dict.fromkeys(("stroke-linejoin", "stroke-linecap", "fill-rule", "clip-rule", "text-anchor"), _WORDS),
    **dict.fromkeys(("shape-rendering", "image-rendering", "white-space"), _WORDS),
    **dict.fromkeys(("font", "font-family", "font-size", "font-style", "font-weight", "font-variant"), _FONTS),
    **dict.fromkeys(("font-stretch",), _FONTS),
    "clip-path": _HERE,
}
ATTRIBUTES = PROPERTIES | {
    **dict.fromkeys(("x", "y", "x1", "y1", "x2", "y2", "width", "height", "rx", "ry", "dx", "dy", "offset"), _NUMBERS),
    **dict.fromkeys(("transform", "patternTransform", "gradientTransform"), _MOVES),
    **dict.fromkeys(("patternUnits", "gradientUnits", "preserveAspectRatio", "role"), _WORDS),
    **dict.fromkeys(("viewBox", "version"), _NUMBERS),
    "aria-label": r"(?s:.*)",
    "id": _NAME,
    "d": r"[MmLlHhVvCcSsQqTtAaZz0-9eE+\-.,\s]*",
    "type": "text/css",
}
SPEAKING = ("text", "tspan", "style")  # what is written elsewhere is blanks
HREF = {"use": rf"#{_NAME}", "image": r"data:image/png;base64,[A-Za-z0-9+/=\s]*"}
ELEMENTS = {
    f"{{{SVG}}}{name}"
    for name in (
        *("svg", "g", "defs", "style", "path", "use", "text", "tspan", "clipPath", "rect", "image"),
        *("linearGradient", "stop", "pattern"),
    )
}


def inline_svg(path: Path, prefix: str, label: str) -> Markup:
    """The picture of a file as an element of an HTML page: see `inlined`.

    Raises:
        TableError: the file is no SVG.
    """
    return inlined(path.read_bytes(), prefix, label, str(path))


def inlined(svg: bytes, prefix: str, label: str, source: str) -> Markup:
    """The picture as an element of an HTML page.

    Ids get `prefix`, so that two pictures of a page never share one; the style sheet inside acts on this picture alone;
    ink and grid follow the page's colours. An element, attribute or value that matplotlib does not write is left out,
    an element with all that is in it: nothing in the picture can run, load anything, or leave its place.

    Args:
        label: what a reader who cannot see the picture is told.
        source: where it comes from, for errors.

    Raises:
        TableError: it is no SVG, or it declares entities of its own.
    """
    register_namespace("", SVG)
    register_namespace("xlink", XLINK)
    try:
        root = _parsed(svg)
    except (ExpatError, ValueError) as error:
        raise TableError(f"{source}: not a readable SVG picture ({error})") from error
    box = root.get("viewBox", "").split()
    if root.tag != f"{{{SVG}}}svg" or len(box) != 4:
        raise TableError(f"{source}: not an SVG picture with a viewBox")
    _clean(root)
    for element in root.iter():
        _adapt(element, prefix)
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    root.attrib |= {"id": f"{prefix}-picture", "role": "img", "aria-label": label}
    root.set("style", f"max-width: {_number(box[2], source) * ENLARGED:.0f}px")
    return Markup(tostring(root, encoding="unicode"))


def _parsed(svg: bytes) -> Element:
    """The root, by a parser that resolves no entity but XML's own five, reads no other file, and bounds the depth.

    Raises:
        ExpatError, ValueError: it is not such XML.
    """
    tree, parser, depth = TreeBuilder(), ParserCreate(namespace_separator="}"), 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} elements inside each other")
        tree.start(_qualified(name), {_qualified(key): value for key, value in attributes.items()})

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        tree.end(_qualified(name))

    def doctype(name: str, system: str | None, public: str | None, own: int) -> None:
        if own:
            raise ValueError("it declares entities of its own")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = tree.data, doctype
    parser.Parse(svg, True)
    return tree.close()


def _qualified(name: str) -> str:
    """Expat's namespace}name as ElementTree has it."""
    return f"{{{name}" if "}" in name else name


def _clean(parent: Element) -> None:
    """Leave out every element and attribute that is not known to be harmless."""
    for name, value in list(parent.attrib.items()):
        if not _harmless(_local(parent.tag), name, value):
            del parent.attrib[name]
    speaks = _local(parent.tag) in SPEAKING
    parent.text = parent.text if speaks else None
    for child in list(parent):
        child.tail = child.tail if speaks else None
        if child.tag in ELEMENTS:
            _clean(child)
        else:
            parent.remove(child)


def _harmless(element: str, name: str, value: str) -> bool:
    if name == "style":
        return True  # what it says is looked at declaration by declaration
    if name in ("href", f"{{{XLINK}}}href"):
        return element in HREF and re.fullmatch(HREF[element], value) is not None
    return name in ATTRIBUTES and re.fullmatch(ATTRIBUTES[name], value) is not None


def _declarations(text: str) -> str:
    """Those declarations of a style that are known to be harmless."""
    kept = []
    for declaration in text.split(";"):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if (name in PROPERTIES and re.fullmatch(PROPERTIES[name], value)) or (
            name == "transform" and re.fullmatch(_MOVES, value)
        ):
            kept.append(f"{name}: {value}")
    return "; ".join(kept)


def _adapt(element: Element, prefix: str) -> None:
    for name, value in list(element.attrib.items()):
        if name == "id":
            element.set(name, f"{prefix}-{value}")
        elif name.endswith("href"):
            element.set(name, re.sub("^#", f"#{prefix}-", value))
        elif name != "aria-label":
            value = _declarations(value) if name == "style" else value
            element.set(name, _recolor(value.replace("url(#", f"url(#{prefix}-")))
    if _local(element.tag) == "style":
        rule = re.fullmatch(r"\s*\*\s*\{([^{}]*)\}\s*", element.text or "")  # the one that matplotlib writes
        inside = _recolor(_declarations(rule[1])) if rule else ""
        element.text = f"#{prefix}-picture {{ *{{{inside}}} }}"  # nested rules: a scope
        element[:] = []


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _number(text: str, source: str) -> float:
    if not re.fullmatch(r"\d{1,6}(\.\d*)?", text):
        raise TableError(f"{source}: not an SVG picture with a viewBox")
    return float(text)


def _recolor(text: str) -> str:
    return text.replace(INK, "var(--ink)").replace(GRID, "var(--grid)")
