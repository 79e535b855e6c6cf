"""Properties of the recurrence of a mixer: declared in its spec, and measured (ls Table 2, bn Appendix B).

The measurements treat the mixer as a black box. Two initial states read the same inputs, and the difference of their
final states is compared with the initial difference.

- If it is the same for other inputs, the decay does not depend on the input.
- If it doubles when the initial difference doubles, the recurrence is linear in the state.
- If it equals the initial difference, A_t is the identity.

The state is the h_t of the paper of the system. In RWKV-4 this is the average, and its weight is not changed.
"""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor

from ssm.base.seeds import derived_seed
from ssm.evaluation.registry import MEASURES
from ssm.models.mixers import build_mixer
from ssm.models.mixers.base import Mixer
from ssm.specs.measurements.taxonomy import Taxonomy
from ssm.specs.model import ModelSpec

TOLERANCE = 1e-6  # relative difference up to which numbers in float64 count as equal
MOVED = 0.02  # standard deviation of the noise on parameters
STEPS = 4  # number of tokens; few enough that no mixer here has forgotten the initial state


@MEASURES.function
def taxonomy(spec: Taxonomy, device: torch.device | None = None) -> pl.DataFrame:
    """One row for each model, in the schema Taxonomy.table, on the CPU in float64; for a hybrid, of most layers."""
    return pl.DataFrame([_row(model, spec) for model in spec.models], schema=Taxonomy.table.columns)


def _row(model: ModelSpec, spec: Taxonomy) -> dict[str, object]:
    main = model.main_mixer()
    declared = main.taxonomy
    generator = torch.Generator().manual_seed(derived_seed(spec.seed, "taxonomy"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(spec.seed, "initialization"))
        mixer = build_mixer(main, model.d_model, model.n_layers).double().eval()
    with torch.no_grad():
        for parameter in mixer.parameters():  # because some projections are initialized as zero
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64), alpha=MOVED)
        u, other = torch.randn(2, 1, spec.length, model.d_model, generator=generator, dtype=torch.float64).unbind(0)
        sizes = [_numbers(mixer(u[:, :length])[1]) for length in (1, spec.length)]
        selective, linear, identity = _behavior(mixer, u[:, :STEPS], other[:, :STEPS], generator)
    return {
        "model": model.name,
        "mixer": main.kind,
        "system": declared.system,
        "paper": declared.paper,
        "scan": declared.scan,
        "decay": declared.decay,
        "complex": declared.complex,
        "recurrence": "\n".join(declared.recurrence),
        "state_shape": " x ".join(map(str, main.state_shape(model.d_model))),
        "state_numbers": sizes[0],
        "state_numbers_late": sizes[1],
        "length": spec.length,
        "selective": selective,
        "linear": linear,
        "identity": identity,
    }


def _numbers(state: dict[str, Tensor]) -> int:
    return sum(tensor.numel() for tensor in state.values())


def _behavior(
    mixer: Mixer, u: Tensor, other: Tensor, generator: torch.Generator
) -> tuple[bool, bool, bool] | tuple[None, None, None]:
    """(selective, linear, identity); None for a state that grows, because it keeps the initial state."""
    started = mixer(u)[1]
    if mixer(u[:, :1])[1]["memory"].shape != started["memory"].shape:
        return None, None, None
    difference = torch.randn(started["memory"].shape, generator=generator, dtype=torch.float64)
    difference[:, mixer.spec.h_heads(mixer.d_model) :] = 0.0

    def remains(inputs: Tensor, scale: float) -> Tensor:
        """The final difference for an initial difference times `scale`, divided by `scale`."""
        ended = [
            mixer(inputs, {**started, "memory": started["memory"] + by * difference})[1]["memory"]
            for by in (scale, 0.0)
        ]
        return (ended[0] - ended[1]) / scale

    once, twice, elsewhere = remains(u, 1.0), remains(u, 2.0), remains(other, 1.0)
    return not _equal(once, elsewhere), _equal(once, twice), _equal(difference, once)


def _equal(a: Tensor, b: Tensor) -> bool:
    return float((a - b).norm()) <= TOLERANCE * float(a.norm())
