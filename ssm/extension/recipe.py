"""The runs of an extension: from the parent with the intervention, and the control arm without it."""

from __future__ import annotations

from math import isclose

from ssm.models.checkpoint import snapshot_step
from ssm.specs.data import Data
from ssm.specs.extension import ExtensionSpec
from ssm.specs.foreign import AnyModel, ForeignSpec
from ssm.specs.initial_states import InitialStateSpec
from ssm.specs.initial_states.zero import ZeroState
from ssm.specs.training import RunSpec, TrainingSpec

TENTH = 0.1  # of the peak learning rate that the model's size is pre-trained with (lg App. B.2)
SNAPSHOTS = (0.25, 0.5, 0.75)  # of the steps
# lg App. B.2: the recipe of pre-training (App. B.1, Table 2) for so many steps, at TENTH of its rate.
PAPERS_BATCH, PAPERS_STEPS = 500_000, 100


def extended_run(spec: ExtensionSpec, parent: RunSpec, data: Data, source: str) -> RunSpec:
    """The run that continues `parent` with the intervention.

    Args:
        source: what the user called the model, for errors.

    Raises:
        ConfigError: the numbers do not fit together, or the model has no state that the intervention can set.
    """
    return _run(spec, parent, data, source, spec.initial_state)


def control_run(spec: ExtensionSpec, parent: RunSpec, data: Data, source: str) -> RunSpec:
    """The same run without an intervention, its text in the same order. Errors as `extended_run`."""
    return _run(spec, parent, data, source, ZeroState(order=spec.initial_state.order))


def training_of(spec: ExtensionSpec, model: AnyModel, source: str) -> TrainingSpec:
    """How the model is trained with the intervention.

    Raises:
        ConfigError: the numbers do not fit together.
    """
    return TrainingSpec.parse(
        {
            "context": spec.diagnosis.context,
            "batch_tokens": spec.whole_batch_tokens,
            "micro_batch_tokens": spec.forward_tokens,
            "budget": {"steps": spec.steps},
            "lr_scale": peak_lr(spec, model) / model.peak_lr,
            "precision": spec.diagnosis.precision,
            "activation_checkpointing": spec.activation_checkpointing,
            "initial_state": spec.initial_state,
            "snapshots": snapshots(spec.steps),
        },
        source,
    )


def peak_lr(spec: ExtensionSpec, model: AnyModel) -> float:
    """The peak learning rate of the extension."""
    return spec.lr or TENTH * model.peak_lr


def snapshots(steps: int) -> tuple[float, ...]:
    """The fractions at which weights are kept, those that are steps of their own before the last one."""
    by_step = {snapshot_step(at, steps): at for at in reversed(SNAPSHOTS)}
    return tuple(sorted(at for step, at in by_step.items() if step < steps))


def given_a_state(model: AnyModel) -> str:
    """Which layers start from other states than zero, in words."""
    if isinstance(model, ForeignSpec):
        others = ", ".join(str(layer) for layer in range(model.n_layers) if layer not in model.recurrent)
        caches = f"; the caches of {', '.join(map(str, model.caches))} start empty, and positions at 0"
        those = f"all {model.n_layers}{f' but {others}' if others else ''}"
        return f"{those}: recurrent and convolution states{caches if model.caches else ''}"
    if not model.endless:
        return f"all {model.n_layers}"
    caches = ", ".join(map(str, model.endless))
    return f"all {model.n_layers} but {caches}: attention, whose cache starts empty, and its positions at 0"


def unlike_the_paper(spec: ExtensionSpec, model: AnyModel) -> tuple[str, ...]:
    """What differs from the post-training of lg Section 4 and Appendix B.2, in words."""
    found = ["it reads your text, the paper's models read the Pile"]
    batch, rate = spec.whole_batch_tokens, TENTH * model.peak_lr
    if not 0.9 < batch / PAPERS_BATCH < 1.1:
        found.append(f"a step reads {batch:,} tokens, the paper's about {PAPERS_BATCH:,} (Table 2)")
    if spec.steps != PAPERS_STEPS:
        found.append(f"{spec.steps:,} steps, the paper's {PAPERS_STEPS}")
    if not isclose(peak_lr(spec, model), rate):
        found.append(f"a peak learning rate of {peak_lr(spec, model):.3g}, the paper's a tenth: {rate:.3g}")
    found += spec.initial_state.unlike_the_paper()
    if model.caches if isinstance(model, ForeignSpec) else model.endless:
        found.append("it has attention, which is given no state; the paper's models have none")
    kept = len(snapshots(spec.steps)) + 1
    found.append(f"of {kept} sets of weights the best by held-out text is kept, the paper keeps the last")
    return tuple(found)


def _run(spec: ExtensionSpec, parent: RunSpec, data: Data, source: str, initial_state: InitialStateSpec) -> RunSpec:
    training = training_of(spec, parent.model, source).model_copy(update={"initial_state": initial_state})
    content = {"model": parent.model, "data": data, "training": training, "seed": spec.diagnosis.seed, "parent": parent}
    return RunSpec.parse(content, source)
