"""A claim that reads what its figure does not measure is refused before anything is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan.mini import edit, figure, write_config

from ssm.base.errors import ConfigError
from ssm.plan import load_config, make_plan


def planned(
    folder: Path,
    measurements: list[dict[str, object]],
    expected: dict[str, float] | None = None,
    context: int = 32,
    **quantity: object,
) -> None:
    claim = {
        "id": "far",
        "says": "It is far.",
        "paper": "None.",
        "quantity": {"kind": "restart_ratio", "arm": "base"} | quantity,
        "expected": expected or {"above": 1.0},
    }
    write_config(folder)
    edit(folder, "training.yaml", "{smoke: 32, paper: 2048}", str(context))
    edit(folder, "training.yaml", "{smoke: 128, paper: 524_288}", str(4 * context))
    figure(folder, "lg_fig9", measurements=measurements, claims=[claim])
    make_plan(load_config(folder, "smoke", ["lg_fig9"]))


LOSS, RESTARTED = ({"kind": kind, "length": 512, "sequences": 2} for kind in ("position_loss", "restart_loss"))


@pytest.mark.parametrize("place", [{"times_context": 1}, {"times_context": 16}, {"position": 256}])
def test_what_is_measured_is_planned(tmp_path: Path, place: dict[str, object]) -> None:
    planned(tmp_path, [LOSS, RESTARTED], **place)


@pytest.mark.parametrize(
    ("place", "key", "stop"),
    [
        ({"times_context": 0.5}, "times_context", "16"),
        ({"times_context": 3}, "times_context", "96"),
        ({"position": 500}, "position", "500"),
    ],
)
def test_a_position_that_is_not_measured(tmp_path: Path, place: dict[str, object], key: str, stop: str) -> None:
    with pytest.raises(ConfigError) as error:
        planned(tmp_path, [LOSS, RESTARTED], **place)
    assert str(error.value) == (
        f"{tmp_path}/figures/lg_fig9.yaml: claims.far.quantity.{key}: "
        f"the loss after a restart is measured at 32, 64, 128, 256, 512 tokens, not at {stop}"
    )


@pytest.mark.parametrize("arm", ["base", "state_passing"])
def test_an_arm_that_is_not_measured(tmp_path: Path, arm: str) -> None:
    only = [LOSS | {"arms": ["state_passing"]}, RESTARTED]
    if arm == "state_passing":
        return planned(tmp_path, only, arm=arm, times_context=16)
    with pytest.raises(ConfigError, match=r"claims\.far\.quantity: the arm 'base' has no measurement 'position_loss'"):
        planned(tmp_path, only, arm=arm, times_context=16)


def test_the_restarted_arm_may_be_another(tmp_path: Path) -> None:
    only = [LOSS, RESTARTED | {"arms": ["base"]}]
    planned(tmp_path, only, arm="state_passing", restarted="base", times_context=16)
    for restarted in (None, "state_passing"):
        with pytest.raises(ConfigError, match="the arm 'state_passing' has no measurement 'restart_loss'"):
            planned(tmp_path, only, arm="state_passing", restarted=restarted, times_context=16)


def test_the_arm_that_it_is_compared_with_is_measured_too(tmp_path: Path) -> None:
    only = [LOSS | {"arms": ["state_passing"]}, RESTARTED]
    with pytest.raises(ConfigError, match="the arm 'base' has no measurement 'position_loss'"):
        planned(tmp_path, only, arm="state_passing", against="base", times_context=16)


@pytest.mark.parametrize(("length", "times", "stop"), [(512, 64, "2,048"), (256, 16, "512")])
def test_a_position_beyond_the_measured_length(tmp_path: Path, length: int, times: int, stop: str) -> None:
    with pytest.raises(
        ConfigError, match=f"times_context: position_loss is measured up to {length} tokens, not at {stop}"
    ):
        planned(tmp_path, [LOSS | {"length": length}, RESTARTED], times_context=times)


@pytest.mark.parametrize(
    "quantity",
    [
        {"times_context": 4, "against": "base"},
        {"times_context": 4, "against": "base", "against_model": "tiny"},
        {"kind": "slope", "measurement": "position_loss", "x": "position", "column": "loss", "against": "base"},
    ],
)
def test_an_arm_is_not_compared_with_itself(tmp_path: Path, quantity: dict[str, object]) -> None:
    message = r"claims\.far\.quantity\.against: is the judged arm itself; name another arm, or no 'against'"
    with pytest.raises(ConfigError, match=message):
        planned(tmp_path, [LOSS, RESTARTED], **quantity)
    planned(tmp_path, [LOSS, RESTARTED], **quantity | {"against": "state_passing"})


@pytest.mark.parametrize("kind", ["perplexity_at", "perplexity_growth", "value_at"])
def test_every_quantity_of_a_position_says_so(tmp_path: Path, kind: str) -> None:
    column = {"measurement": "position_loss", "column": "loss"} if kind == "value_at" else {}
    planned(tmp_path, [LOSS], kind=kind, times_context=16, **column)
    message = r"claims\.far\.quantity\.times_context: position_loss is measured up to 512 tokens, not at 1,024"
    with pytest.raises(ConfigError, match=message):
        planned(tmp_path, [LOSS], kind=kind, times_context=32, **column)


@pytest.mark.parametrize("kind", ["perplexity_at", "perplexity_growth", "value_at"])
def test_a_quarter_that_is_not_whole_bins(tmp_path: Path, kind: str) -> None:
    column = {"measurement": "position_loss", "column": "loss"} if kind == "value_at" else {}
    message = r"times_context: position_loss has no bins from 288 to 384 tokens; expected a power of two instead of 384"
    with pytest.raises(ConfigError, match=message):
        planned(tmp_path, [LOSS], kind=kind, times_context=12, **column)


def test_a_context_that_is_not_whole_bins(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"quantity\.arm: position_loss has no bins from 18 to 36 tokens"):
        planned(tmp_path, [LOSS], kind="perplexity_growth", times_context=512 / 36, context=36)


def test_a_value_after_a_restart_that_is_not_measured(tmp_path: Path) -> None:
    reading = {"kind": "value_at", "measurement": "restart_loss", "column": "loss"}
    planned(tmp_path, [RESTARTED], times_context=4, **reading)
    with pytest.raises(ConfigError, match=r"times_context: the loss after a restart is measured at 32, .*, not at 96"):
        planned(tmp_path, [RESTARTED], times_context=3, **reading)


@pytest.mark.parametrize("kind", ["state_norm_growth", "head_drift"])
def test_a_state_that_is_not_measured(tmp_path: Path, kind: str) -> None:
    states = {"kind": "state_statistics", "length": 96, "sequences": 2}
    for times in (2, 3):  # 96 is the length
        planned(tmp_path, [states], kind=kind, times_context=times)
    for times, context, key, position in (
        (1.5, 32, "times_context", 48),
        (4, 32, "times_context", 128),
        (4, 24, "arm", 24),
    ):
        with pytest.raises(ConfigError, match=rf"\.{key}: the state is measured after .*96 .*not after {position}"):
            planned(tmp_path, [states], kind=kind, times_context=times, context=context)


def test_a_sweep_over_arms_that_are_not_measured(tmp_path: Path) -> None:
    def swept(**of: object) -> None:
        sweep = {"of": {"kind": "restart_ratio"} | of, "arms": ["base", "state_passing"], "at": [1, 2]}
        content = {"kind": "slope", "arm": None, "sweep": sweep}
        planned(tmp_path, [LOSS, RESTARTED], **content)

    swept(times_context=16)
    with pytest.raises(ConfigError, match=r"claims\.far\.quantity\.sweep\.of\.times_context: the loss after a restart"):
        swept(times_context=3)


def test_a_bound_at_an_end_of_a_sweep(tmp_path: Path) -> None:
    """The region is above 1. The mean of optima from 1 on is above 1 as soon as one of them is."""

    def swept(*at: float) -> None:
        sweep = {"of": {"kind": "restart_ratio", "times_context": 16}, "arms": ["base", "state_passing"], "at": at}
        planned(tmp_path, [LOSS, RESTARTED], kind="optimum", which="smallest", arm=None, sweep=sweep)

    swept(0.5, 2)
    with pytest.raises(ConfigError, match=r"expected: 1 is a limit of the possible numbers \(1 to 2\)"):
        swept(1, 2)


COLUMN = {"measurement": "position_loss", "column": "loss"}


@pytest.mark.parametrize(
    ("quantity", "said"),
    [
        ({"kind": "value_at", **COLUMN, "column": "los"}, "column: a position_loss table has no column 'los'; did you"),
        ({"kind": "value_at", **COLUMN, "where": {"positon": 3}}, "where.positon: a position_loss table has no column"),
        (
            {"kind": "value_at", **COLUMN, "where": {"position": 3}},
            "has no column 'position'; did you mean 'position_to",
        ),
        ({"kind": "value_at", **COLUMN, "times_context": 2, "along": "length"}, "along: a position_loss table has no"),
        ({"kind": "slope", **COLUMN, "x": "positon"}, "x: a position_loss table has no column 'positon'; did you mean"),
        ({"kind": "slope", **COLUMN, "x": "position", "between": [9, 3]}, "'between' must ascend, got 9 and 3"),
        ({"kind": "value_at", **COLUMN, "limits": [9, 0]}, "'limits' must ascend, got 9 and 0"),
        ({"kind": "value_at", **COLUMN, "limits": [0, 0.5]}, "the region > 1 contains no possible number"),
        ({"kind": "value_at", **COLUMN, "limits": [2, 3]}, "the region > 1 contains every possible number"),
        ({"kind": "value_at", **COLUMN, "limits": [1, 3]}, "1 is a limit of the possible numbers (1 to 3), so that no"),
    ],
)
def test_claims_that_their_tables_cannot_answer(tmp_path: Path, quantity: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        planned(tmp_path, [LOSS, RESTARTED], **quantity)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("expected", "advice"),
    [
        ({"above": 1.0}, "choose a bound between the limits"),
        ({"above": 1.0, "below": 2.0}, "leave 'above' out"),
        ({"above": 2.0, "below": 3.0}, "leave 'below' out"),
        ({"above": 1.0, "below": 3.0}, "choose a bound between the limits"),
    ],
)
def test_advice_for_a_bound_at_a_limit(tmp_path: Path, expected: dict[str, float], advice: str) -> None:
    with pytest.raises(ConfigError) as error:
        planned(tmp_path, [LOSS, RESTARTED], expected, kind="value_at", **COLUMN, limits=[1, 3])
    assert str(error.value).endswith(advice)


def test_drawings_of_columns_that_do_not_exist(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    for key, column in {"x": "positon", "column": "los", "by": "posit"}.items():
        drawing = {"kind": "curves", "x": "position", **COLUMN} | {key: column}
        figure(config, "lg_fig9", measurements=[LOSS], drawings=[drawing])
        with pytest.raises(
            ConfigError, match=rf"drawings\.curves\.{key}: a position_loss table has no column '{column}'"
        ):
            load_config(config, "smoke", ["lg_fig9"])
