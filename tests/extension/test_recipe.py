"""The specs of an extension's runs, and of a checkpoint as a run of zero steps."""

from __future__ import annotations

from typing import Any

import pytest
from small import model_spec

from ssm.base.errors import ConfigError
from ssm.extension.recipe import control_run, extended_run, given_a_state, snapshots, unlike_the_paper
from ssm.models.weights_file import snapshot_step
from ssm.specs.corpora.files import FilesCorpus
from ssm.specs.data import DataSpec
from ssm.specs.extension import ExtensionSpec
from ssm.specs.model import ModelSpec
from ssm.specs.training import CheckpointRef, RunSpec

DATA = DataSpec(name="text", corpus=FilesCorpus(paths=("/texts",)))
TRAINED = {"context": 16, "batch_tokens": 64, "budget": {"steps": 3}}
NOT_TRAINED = {"context": 16, "batch_tokens": 16, "budget": {"steps": 0}}
REFERENCE = CheckpointRef(name="theirs", fingerprint="0123456789abcdef")


def run(**changes: Any) -> RunSpec:
    content = {"model": model_spec(), "data": DATA, "training": TRAINED, "seed": 1} | changes
    return RunSpec.parse(content, "test")


def imported() -> RunSpec:
    return run(training=NOT_TRAINED, checkpoint=REFERENCE)


def spec(diagnosis: dict[str, Any] | None = None, **settings: Any) -> ExtensionSpec:
    return ExtensionSpec.parse({"diagnosis": {"context": 16, "length": 64} | (diagnosis or {}), **settings}, "test")


def test_differences_from_the_papers_recipe() -> None:
    text = "it reads your text, the paper's models read the Pile"
    choice = "the best of 4 sets of weights is kept, by held-out text; the paper keeps the last"
    model = model_spec()
    at_home = spec({"context": 2048, "length": 32768}, batch_tokens=2048 * 256, micro_batch_tokens=2048)
    assert unlike_the_paper(at_home, model) == (text, choice)
    default = spec({"context": 2048, "length": 32768})
    assert unlike_the_paper(default, model) == (
        text,
        "a step reads 65,536 tokens, the paper's about 500,000 (Table 2)",
        choice,
    )
    other = spec(steps=2, lr=0.5, initial_state={"policy": "state_passing", "p_zero": 0.05})
    said = unlike_the_paper(other, model)
    assert "2 steps, the paper's 100" in said
    assert "a peak learning rate of 0.5, the paper's a tenth: 0.001" in said
    assert "0.05 of the sequences start from zero, the paper's 0.1" in said
    assert said[-1].startswith("the best of 2 sets")
    noise = unlike_the_paper(spec(initial_state={"policy": "random_noise", "sigma": 0.1}), model)
    assert "the paper does not say how much noise it adds" in noise
    for reset in (True, False):
        tbtt = unlike_the_paper(spec(initial_state={"policy": "tbtt", "reset_at_documents": reset}), model)
        assert ("the state is reset where a document starts, and the paper mentions no reset" in tbtt) == reset


def test_runs_without_a_checkpoint_keep_their_id() -> None:
    trained = run()
    assert "checkpoint" not in trained.content()
    assert sorted(trained.content()) == ["data", "model", "parent", "seed", "training"]
    assert RunSpec.parse(trained.content(), "test") == trained


def test_a_checkpoint_is_a_run_of_zero_steps() -> None:
    theirs = imported()
    assert theirs.id.startswith("tiny_T16_imported_s1-")
    assert RunSpec.parse(theirs.content(), "test") == theirs
    other = run(training=NOT_TRAINED, checkpoint=CheckpointRef(name="theirs", fingerprint="another"))
    assert other.id != theirs.id
    child = run(parent=theirs)
    assert child.content()["parent"]["checkpoint"] == {"name": "theirs", "fingerprint": "0123456789abcdef"}
    assert RunSpec.parse(child.content(), "test") == child
    assert child.stage == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"checkpoint": REFERENCE}, "a checkpoint needs training.budget.steps 0"),
        ({"training": NOT_TRAINED, "checkpoint": REFERENCE, "parent": run()}, "a run of zero steps takes no parent"),
        ({"training": NOT_TRAINED, "parent": run()}, "a run of zero steps takes no parent"),
    ],
)
def test_zero_steps_start_anew_or_from_a_checkpoint(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(**changes)


def test_the_papers_recipe() -> None:
    parent = imported()
    extended = extended_run(spec(), parent, DATA, "theirs")
    training = extended.training
    assert extended.parent == parent
    assert training.initial_state.content() == {"policy": "state_passing", "p_zero": 0.1}
    assert training.lr_scale == pytest.approx(0.1)
    assert training.budget.steps == 100
    assert (training.batch_tokens, training.context, training.precision) == (32 * 16, 16, "float32")
    assert training.snapshots == (0.25, 0.5, 0.75)
    control = control_run(spec(), parent, DATA, "theirs")
    assert control.training.initial_state.policy == "zero"
    as_control = training.model_copy(update={"initial_state": control.training.initial_state})
    assert control == extended.model_copy(update={"training": as_control})


def test_settings_reach_the_training() -> None:
    asked = spec(
        {"precision": "bfloat16", "seed": 7},
        initial_state={"policy": "tbtt", "p_zero": 0.3},
        steps=8,
        lr=5e-4,
        batch_tokens=128,
        micro_batch_tokens=32,
        activation_checkpointing=True,
    )
    extended = extended_run(asked, imported(), DATA, "theirs")
    training = extended.training
    assert extended.seed == 7
    assert training.lr_scale * extended.model.peak_lr == pytest.approx(5e-4)
    assert (training.batch_tokens, training.micro_batch_tokens, training.budget.steps) == (128, 32, 8)
    assert (training.precision, training.activation_checkpointing) == ("bfloat16", True)
    assert training.initial_state.content()["p_zero"] == 0.3
    control = control_run(asked, imported(), DATA, "theirs")
    assert control.training.initial_state.content() == {"policy": "zero", "order": "stream"}


@pytest.mark.parametrize(
    ("context", "batch", "forward"),
    [(2048, None, 8192), (16, None, 512), (8192, None, 8192), (16384, None, 16384), (2048, 2048 * 6, 2048 * 3)],
)
def test_the_micro_batch_divides_the_batch_and_is_small(context: int, batch: int | None, forward: int) -> None:
    asked = spec({"context": context, "length": 2 * context}, batch_tokens=batch)
    assert asked.forward_tokens == forward
    training = extended_run(asked, imported(), DATA, "theirs").training
    assert training.micro_batch_tokens == forward


def test_contradicting_settings_give_one_line() -> None:
    with pytest.raises(ConfigError, match="theirs: --batch-tokens 100 must be a multiple of --context 16"):
        extended_run(spec(batch_tokens=100), imported(), DATA, "theirs")
    with pytest.raises(ConfigError, match="it is the control arm"):
        spec(initial_state={"policy": "zero"})


def test_attention_without_a_window_has_no_state_to_pass() -> None:
    attention = model_spec().content() | {"mixer": {"kind": "attention", "n_heads": 2}}
    parent = run(model=attention, training=NOT_TRAINED, checkpoint=REFERENCE)
    with pytest.raises(ConfigError, match="attention without a window"):
        extended_run(spec(), parent, DATA, "theirs")


def test_the_layers_of_a_hybrid_that_are_given_a_state() -> None:
    layers = {"n_layers": 4, "mixer_at": {"1": {"kind": "attention", "n_heads": 2}}}
    hybrid = ModelSpec.parse(model_spec().content() | layers, "test")
    parent = run(model=hybrid.content(), training=NOT_TRAINED, checkpoint=REFERENCE)
    assert extended_run(spec(), parent, DATA, "theirs").model == hybrid
    said = "all 4 but 1: attention, whose cache starts empty, and its positions at 0"
    assert given_a_state(hybrid) == said
    assert "it has attention, which is given no state; the paper's models have no attention" in unlike_the_paper(
        spec(), hybrid
    )
    assert given_a_state(model_spec()) == f"all {model_spec().n_layers}"


@pytest.mark.parametrize(("steps", "kept"), [(100, [25, 50, 75]), (8, [2, 4, 6]), (3, [1, 2]), (2, [1]), (1, [])])
def test_snapshots_are_different_steps_before_the_last(steps: int, kept: list[int]) -> None:
    assert [snapshot_step(at, steps) for at in snapshots(steps)] == kept
