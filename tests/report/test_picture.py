"""What stands in a picture: all that matplotlib writes, and nothing that another hand wrote into it."""

from __future__ import annotations

import io
import re
import time
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from html_page import Page
from matplotlib.figure import Figure

from ssm.base.errors import TableError
from ssm.base.formulas import mathtext
from ssm.figures.style import RC
from ssm.report.picture import inlined

HEAD = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">'
EVENTS = ("onload", "ONLOAD", "onLoad", "onclick", "onbegin", "xlink:onload")


def shown(inside: str, head: str = HEAD) -> str:
    return str(inlined(f"{head}{inside}<path id='last' d='M 0 0'/></svg>".encode(), "p", "label", "x.svg"))


HOSTILE = {
    "a script": "<script>bad()</script>",
    "a script in capitals": "<SCRIPT>bad()</SCRIPT>",
    "a script of HTML": '<x:script xmlns:x="http://www.w3.org/1999/xhtml">bad()</x:script>',
    "a script without a namespace": '<script xmlns="">bad()</script>',
    "a refresh": '<meta http-equiv="refresh" content="0;url=bad"/>',
    "a refresh of HTML": '<meta xmlns="http://www.w3.org/1999/xhtml" http-equiv="refresh" content="0;url=bad"/>',
    "HTML inside": '<foreignObject><body xmlns="http://www.w3.org/1999/xhtml">bad</body></foreignObject>',
    "HTML inside, in small": "<foreignobject><p>bad</p></foreignobject>",
    "a frame": '<iframe src="bad"/>',
    "a link": '<a xlink:href="bad"><text>bad</text></a>',
    "an animation": '<animate attributeName="href" values="bad"/>',
    "a set": '<set attributeName="onload" to="bad()"/>',
    "a filter": '<filter id="f"><feImage href="bad"/></filter>',
    "a style sheet": "<style>@import 'bad';</style>",
    "a style sheet of another": "<style>body{background: bad}</style>",
    "a style sheet in two": "<style>*{fill: red} body{fill: bad}</style>",
    "a style that closes": "<style>*{fill: red</style>&lt;bad&gt;<style>}</style>",
    "an image elsewhere": '<image href="https://example.org/bad.png"/>',
    "an image of SVG": '<image href="data:image/svg+xml;base64,bad"/>',
    "an image of HTML": '<image xlink:href="data:text/html,bad"/>',
    "an image that is none": '<image xlink:href="data:image/png;base64,bad&lt;script&gt;"/>',
    "a use of elsewhere": '<use xlink:href="https://example.org/bad.svg#x"/>',
    "a use of code": '<use href="javascript:bad()"/>',
    "a paint elsewhere": '<path fill="url(https://example.org/bad)"/>',
    "a paint elsewhere in capitals": '<path style="fill: URL(//bad)"/>',
    "a paint with an escape": '<path style="fill: \\75rl(//bad)"/>',
    "a clip elsewhere": '<g clip-path="url(bad.svg#x)"/>',
    "an overlay": '<g style="position: fixed; inset: 0; z-index: 9; content: bad"/>',
    "a cursor": '<g style="cursor: url(bad), auto"/>',
    "a comment": "<!-- bad -->",
    "an instruction": "<?bad href='bad'?>",
    "a class": '<g class="bad"/>',
    "a target": '<g target="bad" ping="bad" data-bad="bad"/>',
    **{f"an event, {name}": f'<g {name}="bad()"/>' for name in EVENTS},
    "an element of another kind": '<g xmlns:b="urn:bad"><b:g/></g>',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_else_is_let_in(name: str) -> None:
    svg = shown(HOSTILE[name])
    assert "bad" not in svg
    assert 'id="p-last"' in svg  # what stands behind it stays
    assert not re.search(r"(?i)script|javascript:|https?://(?!www\.w3\.org/(2000/svg|1999/xlink))|import", svg)
    assert Page(svg).tags <= {"svg", "g", "path", "style", "use", "image"}


def test_the_root_is_no_exception() -> None:
    head = HEAD.replace("<svg", '<svg onload="bad()" class="bad" style="position: fixed; fill: url(//bad)"')
    assert "bad" not in shown("", head)
    assert "fixed" not in shown("", head)


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE svg [<!ENTITY x "bad">]>',
        '<!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE svg [<!ENTITY % x SYSTEM "https://example.org/bad.dtd"> %x;]>',
        '<!DOCTYPE svg SYSTEM "bad.dtd" [<!ATTLIST svg onload CDATA "bad()">]>',
        "<!DOCTYPE svg [" + "".join(f'<!ENTITY x{i} "{f"&x{i - 1};" * 10}">' for i in range(1, 30)) + "]>",
    ],
)
def test_entities_of_its_own_are_refused(doctype: str) -> None:
    started = time.process_time()
    with pytest.raises(TableError, match=r"^x\.svg: not a readable SVG picture \(it declares entities of its own\)$"):
        shown("<text>&x;</text>", doctype + HEAD)
    assert time.process_time() - started < 1


def test_entities_that_a_file_elsewhere_would_declare_are_nothing() -> None:
    svg = shown("<text>a&lt;&x;b</text>", '<!DOCTYPE svg PUBLIC "x" "https://example.org/bad.dtd">' + HEAD)
    assert "a&lt;b" in svg


@pytest.mark.parametrize("text", ["<g>" * 100_000, "<g>" * 100 + "</g>" * 100])
def test_a_deep_picture_is_refused(text: str) -> None:
    with pytest.raises(TableError, match="more than 64 elements inside each other"):
        shown(text)


@pytest.mark.parametrize("box", ["0 0 9e9 9", "0 0 -9 9", "0 0 x 9", "0 0 9", "0 0 NaN 9", "0 0 9999999 9"])
def test_a_picture_without_a_size_is_refused(box: str) -> None:
    with pytest.raises(TableError, match="not an SVG picture with a viewBox"):
        shown("", HEAD.replace("0 0 9 9", box))


def test_what_matplotlib_draws_is_let_in() -> None:
    """But for metadata, and for links and gouraud shading, which no figure here has."""
    with matplotlib.rc_context(RC | {"svg.hashsalt": "a"}):
        figure = Figure()
        above, below = figure.subplots(2)
        above.plot([1, 2, 3], marker="o", linestyle="--", label="a < b")
        above.fill_between([1, 2], [1, 2], alpha=0.2, hatch="//")
        above.errorbar([1], [2], xerr=0.1, color="#1f2328")
        above.annotate("there", (1, 1), (2, 2), arrowprops={"arrowstyle": "->"}, rotation=30)
        above.set_xscale("log")
        above.set_ylabel("$10^{-3}$ × y")
        above.text(1, 1, mathtext("y_t = sum_s exp(dt A)^T / sqrt(1 - a_t^2) + S_{t-1}, vectors"))
        above.legend()
        figure.colorbar(below.imshow(np.eye(4)))
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg")
    before = ElementTree.fromstring(buffer.getvalue())
    after = ElementTree.fromstring(inlined(buffer.getvalue(), "p", "label", "x.svg"))
    rdf = {element for dropped in before.iter("{http://www.w3.org/2000/svg}metadata") for element in dropped.iter()}
    kept = [element for element in before.iter() if element not in rdf]
    assert [element.tag for element in kept] == [element.tag for element in after.iter()]
    for old, new in zip(kept[1:], list(after.iter())[1:], strict=True):
        assert old.attrib.keys() == new.attrib.keys()
        assert _declared(old) == _declared(new)
        assert (old.text or "").strip() == (new.text or "").strip() or old.tag.endswith("}style")
    images = [element for element in after.iter() if element.tag.endswith("}image")]
    assert images
    assert "stroke-linejoin: round; stroke-linecap: butt" in "".join(after.itertext())


def _declared(element: ElementTree.Element) -> list[str]:
    """The names of a style's declarations."""
    return [part.split(":")[0].strip() for part in element.get("style", "").split(";") if part.strip()]
