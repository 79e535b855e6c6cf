"""Colors that color-blind readers can distinguish, and the same style for an arm in every figure."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from ssm.claims.families import member_name
from ssm.figures.colors import INK
from ssm.figures.style import ARMS, CLASSES, GREY, HUES, arm_styles, ramp, tints

# Machado, Oliveira & Fernandes (2009), deuteranopia, severity 1, on linear RGB
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(color: str, vision: np.ndarray) -> np.ndarray:
    """CIELAB of a color as seen with `vision`, a 3 x 3 matrix on linear RGB."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = XYZ @ np.clip(vision @ linear, 0, 1) / (XYZ @ np.ones(3))
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def closest(colors: list[str], vision: np.ndarray) -> float:
    """The smallest CIE76 distance between two of the colors; 2.3 is just noticeable."""
    return min(float(np.linalg.norm(lab(a, vision) - lab(b, vision))) for a, b in combinations(colors, 2))


@pytest.mark.parametrize("vision", [np.eye(3), DEUTERANOPIA], ids=["full", "deuteranopia"])
def test_arms_and_classes_differ_in_color(vision: np.ndarray) -> None:
    assert closest([style.color for style in ARMS.values()], vision) > 12
    assert closest([style.color for style in CLASSES.values()], vision) > 12
    assert closest([style.color for style in ramp(7)], vision) > 7
    assert closest([INK, *(style.color for style in ramp(4))], vision) > 12


def test_arms_differ_without_color() -> None:
    assert len({style.marker for style in ARMS.values()}) == len(ARMS)
    assert len({(style.line, style.marker) for style in ramp(8)}) == 8


@pytest.mark.parametrize("page", ["#ffffff", "#0d1117"])
def test_every_color_is_visible_on_light_and_dark_pages(page: str) -> None:
    colors = [style.color for style in [*ARMS.values(), *CLASSES.values(), *ramp(8)] if style.color != INK]
    assert all(np.linalg.norm(lab(page, np.eye(3)) - lab(color, np.eye(3))) > 30 for color in colors)


def test_styles_do_not_depend_on_the_other_arms() -> None:
    alone = arm_styles(["state_passing"])
    among = arm_styles(["t16", "base", "state_passing", "t32", "standard_state_passing"])
    assert among["state_passing"] == alone["state_passing"] == ARMS["state_passing"]
    assert among["standard_state_passing"].color == ARMS["state_passing"].color
    assert among["standard_state_passing"] != ARMS["state_passing"]


def test_the_ramp_goes_from_dark_to_light_in_the_order_of_arms() -> None:
    styles = arm_styles(["t16", "t32", "t64", "t128"])
    light = [lab(styles[arm].color, np.eye(3))[0] for arm in ("t16", "t32", "t64", "t128")]
    assert light == sorted(light)
    assert light[-1] - light[0] > 40


@pytest.mark.parametrize("vision", [np.eye(3), DEUTERANOPIA], ids=["full", "deuteranopia"])
def test_many_arms_have_different_hues(vision: np.ndarray) -> None:
    """Sixteen steps of a ramp look alike. Arms that share a hue differ in line and marker."""
    many = arm_styles(["control", *(f"system_{i}" for i in range(16))])
    styles = list(many.values())
    assert len({style.color for style in styles}) == len(HUES)
    assert closest(list({style.color for style in styles}), vision) > 12
    assert len({(style.line, style.marker) for style in styles[1:]}) == 16
    assert [style.color for style in styles].count(ARMS["control"].color) == 1
    for start in range(1, 12):
        assert len({style.color for style in styles[start : start + 6]}) == 6, "neighbors"
    known = ["control", "state_passing", "tbtt", "random_noise", "fitted_noise", "standard"]  # use most hues
    mixed = arm_styles([*known, *(f"system_{i}" for i in range(6))])
    assert len({mixed[f"system_{i}"].color for i in range(6)}) >= 3


def test_arms_without_an_order_are_not_on_the_ramp() -> None:
    found = arm_styles(["zero", "previous", "tbtt"], ordered=False)
    assert found["tbtt"] == ARMS["tbtt"]
    assert not {found[arm].color for arm in ("zero", "previous")} & {style.color for style in ramp(3)}


def test_arms_beside_known_interventions_have_the_hues_that_are_left() -> None:
    """The ramp has a green that looks like that of the standard initialization, so it is for arms among their kind."""
    known, bars = ["base", "state_passing", "tbtt", "standard", "control_stream"], ["scaled", "reset", "restarts"]
    found = arm_styles([*known, "scaled", "clipped", "reset", "faded", "restarts"], named=bars)
    assert closest([found[arm].color for arm in (*known, "clipped", "faded")], np.eye(3)) > 12
    members = places("student", n=[1, 2]) | places("new", n=[1])
    families = arm_styles(["teacher", "blank", *members], members)
    assert {families[arm].color for arm in ("teacher", "blank")} == set(HUES[2:4]), "not those of the families"
    among_their_kind = arm_styles(["base", "control", "t16", "t32"])
    assert [among_their_kind[arm] for arm in ("t16", "t32")] == ramp(2)


def test_names_beside_bars_leave_all_hues_to_the_lines_of_a_legend() -> None:
    lines, bars = ([f"{kind}_{i}" for i in range(7)] for kind in ("line", "bar"))
    found = arm_styles([*bars, *lines], named=bars)
    assert {found[arm].color for arm in lines} == set(HUES)
    assert {found[arm].color for arm in bars} == {GREY}
    found = arm_styles([*bars, *lines[:5]], named=bars)
    assert len({style.color for style in found.values()}) == len(HUES)
    assert not {found[arm].color for arm in bars} & {found[arm].color for arm in lines[:5]}


def places(family: str, **axes: list[object]) -> dict[str, tuple[str, dict[str, object]]]:
    """The members of a family, by name."""
    combos = [dict(zip(axes, combo, strict=True)) for combo in product(*axes.values())]
    return {member_name(family, combo): (family, combo) for combo in combos}  # type: ignore[arg-type]


def test_colors_show_the_numbers_of_a_family_and_lines_its_other_axes() -> None:
    members = places("base", d_state=[64, 16, 32], conv=["off", "on"])
    styles = arm_styles([*members, "tbtt"], members)
    assert styles["tbtt"] == ARMS["tbtt"]
    colors = [styles[f"base[d_state={n},conv=off]"].color for n in (16, 32, 64)]
    assert colors == [style.color for style in ramp(3)]  # in the order of the numbers, not of the file
    for n in (16, 32, 64):
        off, on = (styles[f"base[d_state={n},conv={way}]"] for way in ("off", "on"))
        assert off.color == on.color
        assert (off.line, off.marker) != (on.line, on.marker)


def test_many_members_without_an_order_have_hues() -> None:
    members = places("base", fit=["exact", "double", "noisy", "descent", "long", "short"])
    assert [style.color for style in arm_styles(list(members), members).values()] == list(HUES[:6])


def test_the_members_of_sixteen_switches_look_different() -> None:
    switch = [False, True]
    members = places("base", a=switch, dt=switch, bc=switch, conv=switch)
    styles = arm_styles(list(members), members)
    assert len(set(styles.values())) == 16


@pytest.mark.parametrize("vision", [np.eye(3), DEUTERANOPIA], ids=["full", "deuteranopia"])
def test_each_of_several_families_has_its_own_hue(vision: np.ndarray) -> None:
    several = places("base", n=[1, 2, 3]) | places("default", n=[1, 2, 3]) | places("mimetic", n=[1, 2, 3])
    styles = arm_styles(list(several), several)
    assert closest([style.color for style in styles.values()], vision) > 7
    for family in ("base", "default", "mimetic"):
        light = [lab(styles[f"{family}[n={n}]"].color, np.eye(3))[0] for n in (1, 2, 3)]
        assert light == sorted(light)
        assert light[-1] - light[0] > 20


def test_a_family_with_one_member_has_its_hue_itself_and_its_own_line_and_marker() -> None:
    several = places("base", n=[1]) | places("default", n=[1])
    base, default = arm_styles(list(several), several).values()
    assert (base.color, default.color) == (GREY, HUES[0])
    assert base.line != default.line
    assert base.marker != default.marker


@pytest.mark.parametrize("page", ["#ffffff", "#0d1117"])
def test_every_tint_is_visible_on_light_and_dark_pages(page: str) -> None:
    colors = [color for hue in (*HUES, GREY) for color in tints(hue, 5)]
    assert max(lab(color, np.eye(3))[0] for color in colors) < 80, "a bright hue is pale on a light page"
    assert min(np.linalg.norm(lab(page, np.eye(3)) - lab(color, np.eye(3))) for color in colors) > 30
