"""YAML config files, and values by scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan.mini import figure, write_config

from ssm.base.errors import ConfigError
from ssm.plan import load_config
from ssm.plan.read import choose_scale, read_config
from ssm.specs.base import SCALES

PLAIN = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "paper"]), inner, max_size=3)
    ),
    max_leaves=8,
).filter(lambda value: not _has_choice(value))


def _has_choice(value: Any) -> bool:
    if isinstance(value, dict):
        return (bool(value) and set(value) <= set(SCALES)) or any(_has_choice(item) for item in value.values())
    return isinstance(value, list) and any(_has_choice(item) for item in value)


@given(PLAIN)
def test_a_value_without_choices_is_unchanged(value: Any) -> None:
    assert choose_scale(value, "gpu", "file") == value


@given(PLAIN, PLAIN, st.sampled_from(["a", "b"]))
def test_a_choice_is_replaced_at_any_depth(smoke: Any, paper: Any, key: str) -> None:
    choice = {key: [{"smoke": smoke, "paper": paper}], "other": 1}
    assert choose_scale(choice, "smoke", "file") == {key: [smoke], "other": 1}
    assert choose_scale(choice, "paper", "file") == {key: [paper], "other": 1}


CHOICES = st.recursive(
    st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=3)
        | st.dictionaries(st.sampled_from(SCALES), inner, min_size=1, max_size=3)
    ),
    max_leaves=12,
)


def _spelled_out(value: Any) -> Any:
    """The value with the value of smoke copied to every choice that lacks desk."""
    if isinstance(value, list):
        return [_spelled_out(item) for item in value]
    if not isinstance(value, dict):
        return value
    full = {name: _spelled_out(item) for name, item in value.items()}
    return {"desk": full["smoke"]} | full if "smoke" in full and set(full) <= set(SCALES) else full


def _chosen(value: Any, scale: str) -> Any:
    try:
        return choose_scale(value, scale, "file")
    except ConfigError:
        return ConfigError


@given(CHOICES, st.sampled_from(SCALES))
def test_desk_takes_the_value_of_smoke_where_it_has_none(value: Any, scale: str) -> None:
    assert _chosen(value, scale) == _chosen(_spelled_out(value), scale)


def test_choices_inside_choices_and_null_values() -> None:
    assert choose_scale({"smoke": {"gpu": 1, "smoke": None}}, "smoke", "file") is None


def test_a_mapping_with_other_keys_is_no_choice() -> None:
    assert choose_scale({"smoke": 1, "fire": 2}, "gpu", "file") == {"smoke": 1, "fire": 2}
    claim = {"id": "fails", "paper": "Figure 3"}
    assert choose_scale({"claims": [claim]}, "gpu", "file") == {"claims": [claim]}


def test_a_mistyped_scale_is_named() -> None:
    with pytest.raises(ConfigError) as error:
        choose_scale({"seeds": {"smoke": [1], "gpuu": [2]}}, "smoke", "figures/x.yaml")
    assert str(error.value) == "figures/x.yaml: seeds: unknown scale 'gpuu'; did you mean 'gpu'?"


def test_a_missing_scale_names_file_and_key() -> None:
    with pytest.raises(ConfigError) as error:
        choose_scale({"arms": [{"budget": {"paper": 1, "smoke": 2}}]}, "gpu", "figures/x.yaml")
    assert str(error.value) == "figures/x.yaml: arms.0.budget: no value for the scale 'gpu'; it has: smoke, paper"


@pytest.mark.parametrize("text", ["lr: 4e-3", "lr: 4.0e-3", "lr: 0.004", "lr: 4E-03"])
def test_numbers_are_numbers(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert read_config(path) == {"lr": 0.004}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", ":4: the key 'c' is given twice"),
        ("a: 1\nb: [1, 2\nc: 3\n", ":3: while parsing a flow sequence (line 2), expected ',' or ']', but got ':'"),
        ("a: &x {b: 1}\nc: *y\n", ":2: no anchor '&y' is above this alias; define it first"),
        ("a: &base {b: 1}\nc: *bse\n", ":2: no anchor '&bse' is above this alias; did you mean 'base'?"),
        ("a: &x 1\nb: 2\nc: &x 1\n", ":3: the anchor '&x' is given twice; the first is in line 1"),
        ("a:\n\tb: 1\n", ":2: expected spaces, got a tab"),
        ("a: 1\nb\nc: 2\n", ":3: expected ':' after the key in line 2"),
        ("a: 1\nb: 'it\nc: 2\n", ":4: the quotes that begin in line 2 do not end"),
        ("a: 1\nb:\n  c: 1\n d: 2\n", ":4: this does not continue what begins in line 1: check the indentation"),
        ("title: Figure 5: losses\n", ":1: a text with ': ' needs quotes, or this line is indented too far"),
        ("- 1\n- 2\n", ": expected a mapping of keys to values, got list"),
        ("a: !!python/object:os.system {}\n", ":1: could not determine a constructor for the tag"),
        ("[a, b]: 1\n", ":1: "),
    ],
)
def test_bad_yaml_is_one_line_with_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_config(path)
    assert str(error.value).startswith(f"{path}{message}")
    assert "\n" not in str(error.value)


def test_merged_keys_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("x: {deep: {b: &b {<<: &a {k: 1, l: 1}, k: 2}}}\ny: {<<: *b, l: 3}\n")
    assert read_config(path) == {"x": {"deep": {"b": {"k": 2, "l": 1}}}, "y": {"k": 2, "l": 3}}


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such config file"):
        read_config(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(ConfigError, match="not a readable YAML file"):
        read_config(tmp_path / "b.yaml")
    (tmp_path / "c.yaml").write_text("# nothing yet\n")
    assert read_config(tmp_path / "c.yaml") == {}


@pytest.mark.parametrize(("name", "valid"), [("x_my_idea", "x_myidea"), ("idea", "x_idea"), ("X_1", "x_mine")])
def test_a_figure_file_with_a_wrong_name_is_told_a_valid_one(tmp_path: Path, name: str, valid: str) -> None:
    config = write_config(tmp_path / "config")
    figure(config, name)
    with pytest.raises(ConfigError) as error:
        load_config(config, "smoke", [name])
    begin = f"{config}/figures/{name}.yaml: the file's name is the target: expected a paper, '_', then letters"
    assert str(error.value) == f"{begin} and digits only, such as {valid}.yaml"


def test_a_figure_file_whose_name_begins_with_another_paper_is_refused(tmp_path: Path) -> None:
    """Reports sort figures by the beginning of their targets: such a figure would be on no page."""
    config = write_config(tmp_path / "config")
    figure(config, "my_fig1", paper="lg")
    with pytest.raises(ConfigError) as error:
        load_config(config, "smoke", ["my_fig1"])
    begin = f"{config}/figures/my_fig1.yaml: paper: a file of the paper 'lg' needs a name that begins with it"
    assert str(error.value) == f"{begin}, such as lg_mine.yaml"
