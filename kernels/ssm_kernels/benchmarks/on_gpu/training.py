"""Stage training: training steps of the models of scale paper, and what this scale takes, next to the plan's estimate.

A task is one model. It makes real training steps on random tokens, in the precision, with the context and the
micro-batches of the plan. The plan estimates the same runs from the hardware in config.yaml.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any

from ssm_kernels.benchmarks.on_gpu.stages import LONGEST
from ssm_kernels.benchmarks.on_gpu.task import Setting

if TYPE_CHECKING:
    from ssm.plan.plan import Plan
    from ssm.plan.resources import Need
    from ssm.specs.config import WorkflowConfig
    from ssm.specs.training import RunSpec

SECONDS = 25.0  # of timed steps, for each model
WARM = 3  # passes before


def names(setting: Setting) -> list[str]:
    """The models: first the one of each kind with the most training in the plan, then the next of each kind."""
    hours: dict[str, float] = {}
    kinds: dict[str, str] = {}
    plan, needs, _ = _plan(setting)
    for name, run in _trained(plan).items():
        key = _key(run)
        hours[key] = hours.get(key, 0.0) + needs[name].gpu_hours
        kinds[key] = " and ".join(sorted({mixer.kind for mixer in run.own_model.mixers()}))
    return ordered(hours, kinds)[: 1 if setting.rehearse else None]


def ordered(hours: Mapping[str, float], kinds: Mapping[str, str]) -> list[str]:
    """One model of each kind in turn, because the many sizes of one kind would fill the stage's time."""
    rank: dict[str, int] = {}  # within the kind
    seen: Counter[str] = Counter()
    longest_first = sorted(hours, key=lambda key: -hours[key])
    for key in longest_first:
        rank[key] = seen[kinds[key]]
        seen[kinds[key]] += 1
    return sorted(longest_first, key=lambda key: rank[key])


def run(setting: Setting, name: str) -> dict[str, Any]:
    """Tokens per second, the share of the peak, and hours of all runs of this model: measured, and as planned."""
    from ssm.plan.parameters import operations_per_token
    from ssm.plan.resources import training_tokens

    plan, needs, workflow = _plan(setting)
    runs = {job: run for job, run in _trained(plan).items() if _key(run) == name}
    one = max(runs.values(), key=training_tokens)
    rate, memory = _rate(one, setting)
    training = one.training
    each = training.passes * operations_per_token(one.own_model, one.data.vocab_size, training.context)
    share = rate * each / (1e12 * getattr(workflow.hardware.gpu_tflops, training.precision))
    tokens = sum(training_tokens(run) for run in runs.values())
    hours, planned = tokens / rate / 3600, sum(needs[job].gpu_hours for job in runs)
    return {
        "says": f"{rate:,.0f} tokens/s, {share:.1%} of the peak in config.yaml, {memory / 1e9:.1f} GB; "
        f"{len(runs)} runs take {hours:,.1f} hours, the plan says {planned:,.1f}",
        "tokens_per_second": rate,
        "share_of_peak": share,
        "memory_bytes": memory,
        "tokens_in_nine_minutes": rate * LONGEST,
        "runs": len(runs),
        "hours": hours,
        "planned_hours": planned,
    }


def _rate(run: RunSpec, setting: Setting) -> tuple[float, int]:
    """Tokens per second of whole optimizer steps, and the most memory that was used, in bytes."""
    import torch

    from ssm.data.batches import Batch
    from ssm.models.backbone import build_model
    from ssm.training.optimizer import build_optimizer, set_rates
    from ssm.training.step import loss_of
    from ssm_kernels.timing import seconds_of

    training, vocabulary, device = run.training, run.data.vocab_size, torch.device(setting.device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    model = build_model(run.own_model, vocabulary, 0).to(device).train()
    model.recompute = training.activation_checkpointing
    optimizer = build_optimizer(model, training)
    set_rates(optimizer, 1e-5, training.weight_decay)
    rows = training.micro_batch_size
    tokens = torch.randint(vocabulary, (rows, training.context + 1), generator=torch.Generator().manual_seed(0))
    batch = Batch(tokens[:, :-1], tokens[:, 1:])

    def pass_both() -> None:
        """Forward and backward pass of a micro-batch."""
        loss_of(model, batch, None, training, device).loss.backward()

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
        optimizer.step()
        optimizer.zero_grad()

    for call in [pass_both] * WARM + [update]:
        call()
    passes, updates = [seconds_of(pass_both, device)], [seconds_of(update, device)]
    while not setting.rehearse and sum(passes) + sum(updates) < SECONDS:
        passes.append(seconds_of(pass_both, device))
        updates.append(seconds_of(update, device))
    memory = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    seconds = training.batch_size / rows * median(passes) + median(updates)  # of an optimizer step
    return training.batch_tokens / seconds, memory


def _key(run: RunSpec) -> str:
    training = run.training
    return f"{run.own_model.name}, T={training.context}, {training.micro_batch_size} at a time, {training.precision}"


def _trained(plan: Plan) -> dict[str, RunSpec]:
    """The runs that train on text."""
    from ssm.plan.resources import training_tokens

    return {
        name: run
        for name, run in plan.runs.items()
        if run.repair is None and run.data.channels is None and training_tokens(run) > 0
    }


@cache
def _plan(setting: Setting) -> tuple[Plan, dict[str, Need], WorkflowConfig]:
    from ssm.plan.library import load_config
    from ssm.plan.plan import make_plan
    from ssm.plan.resources import needs

    figures = ["lg_fig5"] if setting.rehearse else None
    library = load_config(setting.root / "config", "smoke" if setting.rehearse else "paper", figures)
    plan = make_plan(library)
    return plan, needs(plan, library.workflow, gpu=True), library.workflow
