"""What kind of recurrence a mixer is: as its spec declares it, and as the module behaves (ls Table 2, bn Appendix B).

What is measured treats the mixer as a black box: two random initial states under the same inputs end in states that
differ by what remains of their difference. Where that is the same for other inputs, the decay does not depend on the
input; where it doubles with the difference, the recurrence is linear in its state; where it is the difference itself,
A_t is the identity. The state is what the system's paper calls h_t: RWKV-4's average, whose weight stays as it is.
"""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor

from ssm.base.seeds import derived_seed
from ssm.evaluation.registry import MEASURES
from ssm.models.mixers import build_mixer
from ssm.models.mixers.base import Mixer
from ssm.models.state import RECURRENT
from ssm.specs.measurements.taxonomy import Taxonomy
from ssm.specs.model import ModelSpec

TOLERANCE = 1e-6  # in float64, relative: what counts as equal
MOVED = 0.02  # standard deviation
STEPS = 4  # over which a remainder is followed: no decay that is used here has taken all of it away


@MEASURES.function
def taxonomy(spec: Taxonomy, device: torch.device | None = None) -> pl.DataFrame:
    """One row a model, in the schema Taxonomy.table; of a hybrid, the mixer of most layers. On the CPU, in float64."""
    return pl.DataFrame([_row(model, spec) for model in spec.models], schema=Taxonomy.table.columns)


def _row(model: ModelSpec, spec: Taxonomy) -> dict[str, object]:
    main = model.main_mixer()
    declared = main.taxonomy
    generator = torch.Generator().manual_seed(derived_seed(spec.seed, "taxonomy"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(spec.seed, "initialization"))
        mixer = build_mixer(main, model.d_model, model.n_layers).double().eval()
    with torch.no_grad():
        for parameter in mixer.parameters():  # away from the initialization, where some projections are zero
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64), alpha=MOVED)
        u, other = torch.randn(2, 1, spec.length, model.d_model, generator=generator, dtype=torch.float64).unbind(0)
        sizes = [_numbers(mixer(u[:, :length])[1]) for length in (1, spec.length)]
        selective, linear, identity = _behaviour(mixer, u[:, :STEPS], other[:, :STEPS], generator)
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


def _behaviour(
    mixer: Mixer, u: Tensor, other: Tensor, generator: torch.Generator
) -> tuple[bool, bool, bool] | tuple[None, None, None]:
    """(selective, linear, identity); None for a memory that grows, which keeps what it was given."""
    started = mixer(u)[1]
    if mixer(u[:, :1])[1][RECURRENT].shape != started[RECURRENT].shape:
        return None, None, None
    difference = torch.randn(started[RECURRENT].shape, generator=generator, dtype=torch.float64)
    difference[:, mixer.spec.h_heads(mixer.d_model) :] = 0.0

    def remains(inputs: Tensor, scale: float) -> Tensor:
        """What `scale` times the difference has become after the inputs, over `scale`."""
        ended = [
            mixer(inputs, {**started, RECURRENT: started[RECURRENT] + by * difference})[1][RECURRENT]
            for by in (scale, 0.0)
        ]
        return (ended[0] - ended[1]) / scale

    once, twice, elsewhere = remains(u, 1.0), remains(u, 2.0), remains(other, 1.0)
    return not _equal(once, elsewhere), _equal(once, twice), _equal(difference, once)


def _equal(a: Tensor, b: Tensor) -> bool:
    return float((a - b).norm()) <= TOLERANCE * float(a.norm())
