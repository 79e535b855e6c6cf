"""The specs of an extension's runs: with the intervention, and the control arm without it."""

from __future__ import annotations

from math import isclose

from ssm.base.counting import counted
from ssm.models.weights_file import snapshot_step
from ssm.specs.data import Data
from ssm.specs.extension import OPTIONS, ExtensionSpec
from ssm.specs.foreign import AnyModel, ForeignSpec
from ssm.specs.initial_states import InitialStateSpec
from ssm.specs.initial_states.zero import ZeroState
from ssm.specs.training import RunSpec, TrainingSpec

TENTH = 0.1  # of the peak learning rate for pre-training at the model's size (lg App. B.2)
SNAPSHOTS = (0.25, 0.5, 0.75)  # fractions of the steps
# lg App. B.2: the pre-training recipe (App. B.1, Table 2) for PAPERS_STEPS more steps, at TENTH of its learning rate.
PAPERS_BATCH, PAPERS_STEPS = 500_000, 100


def extended_run(spec: ExtensionSpec, parent: RunSpec, data: Data, source: str) -> RunSpec:
    """The run that continues `parent` with the intervention.

    Args:
        source: the user's name of the model, for error messages.

    Raises:
        ConfigError: the settings contradict each other, or the model has no state that the intervention can set.
    """
    return _run(spec, parent, data, source, spec.initial_state)


def control_run(spec: ExtensionSpec, parent: RunSpec, data: Data, source: str) -> RunSpec:
    """The same run without an intervention, with the text in the same order. Errors as in `extended_run`."""
    return _run(spec, parent, data, source, ZeroState(order=spec.initial_state.order))


def training_of(spec: ExtensionSpec, model: AnyModel, source: str) -> TrainingSpec:
    """The training settings with the intervention.

    Raises:
        ConfigError: the settings contradict each other.
    """
    given = {
        "context": spec.diagnosis.context,
        "batch_tokens": spec.whole_batch_tokens,
        "micro_batch_tokens": spec.forward_tokens,
        "budget": {"steps": spec.steps},
        "lr_scale": peak_lr(spec, model) / model.peak_lr,
        "precision": spec.diagnosis.precision,
        "activation_checkpointing": spec.activation_checkpointing,
        "initial_state": spec.initial_state,
        "snapshots": snapshots(spec.steps),
    }
    return TrainingSpec.of_options(given, OPTIONS, {"lr_scale": "lr"}, source)


def peak_lr(spec: ExtensionSpec, model: AnyModel) -> float:
    """The peak learning rate of the extension."""
    return spec.lr or TENTH * model.peak_lr


def snapshots(steps: int) -> tuple[float, ...]:
    """The fractions at which weights are kept. Each is a different step before the last one."""
    by_step = {snapshot_step(at, steps): at for at in reversed(SNAPSHOTS)}
    return tuple(sorted(at for step, at in by_step.items() if step < steps))


def given_a_state(model: AnyModel) -> str:
    """A description of the layers that start from other states than zero."""
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
    """Differences from the post-training of lg Section 4 and Appendix B.2."""
    differences = ["it reads your text, the paper's models read the Pile"]
    batch, rate = spec.whole_batch_tokens, TENTH * model.peak_lr
    if not 0.9 < batch / PAPERS_BATCH < 1.1:
        differences.append(f"a step reads {batch:,} tokens, the paper's about {PAPERS_BATCH:,} (Table 2)")
    if spec.steps != PAPERS_STEPS:
        differences.append(f"{counted(spec.steps, 'step')}, the paper's {PAPERS_STEPS}")
    if not isclose(peak_lr(spec, model), rate):
        differences.append(f"a peak learning rate of {peak_lr(spec, model):.3g}, the paper's a tenth: {rate:.3g}")
    differences += spec.initial_state.unlike_the_paper()
    if model.caches if isinstance(model, ForeignSpec) else model.endless:
        differences.append("it has attention, which is given no state; the paper's models have no attention")
    kept = len(snapshots(spec.steps)) + 1
    differences.append(f"the best of {kept} sets of weights is kept, by held-out text; the paper keeps the last")
    return tuple(differences)


def _run(spec: ExtensionSpec, parent: RunSpec, data: Data, source: str, initial_state: InitialStateSpec) -> RunSpec:
    training = training_of(spec, parent.model, source).model_copy(update={"initial_state": initial_state})
    content = {"model": parent.model, "data": data, "training": training, "seed": spec.diagnosis.seed, "parent": parent}
    return RunSpec.parse(content, source)
