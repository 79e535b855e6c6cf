"""A figure's SVG, made ready to stand inside the page."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from markupsafe import Markup

from ssm.base.errors import TableError
from ssm.figures.colors import GRID, INK

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
DROPPED = ("metadata", "script", "foreignObject")
ENLARGED = 1.5  # CSS pixels a picture may take for each of its points
REFERENCE = re.compile(r"url\(#([^)]+)\)")


def inline_svg(path: Path, prefix: str, label: str) -> Markup:
    """The picture of a file as an element of an HTML page: see `inlined`.

    Raises:
        TableError: the file is no SVG.
    """
    return inlined(path.read_bytes(), prefix, label, str(path))


def inlined(svg: bytes, prefix: str, label: str, source: str) -> Markup:
    """The picture as an element of an HTML page.

    Ids get `prefix`, so that two pictures of a page never share one; the style sheet inside acts on this picture alone;
    ink and grid follow the page's colours; nothing in it can run or load anything.

    Args:
        label: what a reader who cannot see the picture is told.
        source: where it comes from, for errors.

    Raises:
        TableError: it is no SVG.
    """
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError as error:
        raise TableError(f"{source}: not a readable SVG picture ({error})") from error
    box = root.get("viewBox", "").split()
    if root.tag != f"{{{SVG}}}svg" or len(box) != 4:
        raise TableError(f"{source}: not an SVG picture with a viewBox")
    for parent in root.iter():
        for child in list(parent):
            if child.tag.rsplit("}", 1)[-1] in DROPPED:
                parent.remove(child)
    for element in root.iter():
        _adapt(element, prefix)
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    root.attrib |= {"id": f"{prefix}-picture", "role": "img", "aria-label": label}
    root.set("style", f"max-width: {float(box[2]) * ENLARGED:.0f}px")
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _adapt(element: ElementTree.Element, prefix: str) -> None:
    for name, value in list(element.attrib.items()):
        plain = name.rsplit("}", 1)[-1]
        if plain.startswith("on"):
            del element.attrib[name]
        elif plain == "id":
            element.set(name, f"{prefix}-{value}")
        elif plain == "href":
            if value.startswith("#"):
                element.set(name, f"#{prefix}-{value[1:]}")
            elif not value.startswith("data:image/"):
                del element.attrib[name]
        else:
            element.set(name, _recolor(REFERENCE.sub(rf"url(#{prefix}-\1)", value)))
    if element.tag == f"{{{SVG}}}style":
        element.text = f"#{prefix}-picture {{ {_recolor(element.text or '')} }}"  # nested rules: a scope


def _recolor(text: str) -> str:
    return text.replace(INK, "var(--ink)").replace(GRID, "var(--grid)")
