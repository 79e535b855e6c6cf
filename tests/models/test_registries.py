"""Every registered mixer and ffn: its spec says what its module is; and a newcomer needs two files and two lines."""

from __future__ import annotations

import json
from pathlib import Path

import newcomer
import pytest
import torch
from models.mixers import systems
from plan.mini import write_config
from pydantic import TypeAdapter

from ssm.models.ffn import FFNS, build_ffn
from ssm.models.mixers import build_mixer
from ssm.models.part import Part
from ssm.specs.ffn import SPECS, FfnSpec
from ssm.specs.part import PartSpec
from ssm.specs.registry import kind_of

D, T = 2 * systems.D, 7
FFN_EXAMPLES = {
    "mlp": {"kind": "mlp", "d_hidden": 31},
    "mlp, bias": {"kind": "mlp", "d_hidden": 31, "bias": True},
    "gated_mlp": {"kind": "gated_mlp", "d_hidden": 31},
    "gated_mlp, bias": {"kind": "gated_mlp", "d_hidden": 31, "bias": True},
    "rwkv_channel_mix": {"kind": "rwkv_channel_mix", "d_hidden": 31},
    "rwkv_channel_mix, no receptance": {"kind": "rwkv_channel_mix", "d_hidden": 31, "receptance": False},
    "experts": {"kind": "experts", "n_experts": 5, "top_k": 2, "d_hidden": 7, "d_shared": 9},
    "experts, by sigmoids": {
        "kind": "experts",
        "n_experts": 5,
        "top_k": 2,
        "d_hidden": 7,
        "d_shared": 9,
        "scores": "sigmoid",
        "shared_gate": False,
    },
}


def check(spec: PartSpec, part: Part) -> None:
    """All numbers are exact, but for a window's: notes of which tokens exist (a byte each) are none."""
    assert spec.parameters(D) == sum(parameter.numel() for parameter in part.parameters())
    _, state = part(torch.zeros(1, T, D))
    numbers = sum(tensor.numel() for tensor in state.values() if tensor.dtype != torch.bool)
    window = getattr(spec, "window", None)
    assert spec.state_numbers(D, T) == (numbers if window is None else numbers // (window - 1) * window)
    kept = spec.kept(D)
    assert kept.of(2, T, from_zero=True) - kept.once == 2 * (kept.of(1, T, from_zero=True) - kept.once) > 0


@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_a_mixer_has_what_its_spec_says(name: str) -> None:
    spec = systems.parsed(systems.SYSTEMS[name])
    mixer = build_mixer(spec, D, 3)
    check(spec, mixer)
    memory = mixer(torch.zeros(1, 1, D))[1]["memory"]
    assert memory[0].numel() == spec.memory_numbers(D)
    assert memory.shape[1] == spec.heads(D)


@pytest.mark.parametrize("name", FFN_EXAMPLES)
def test_an_ffn_has_what_its_spec_says(name: str) -> None:
    spec: FfnSpec = TypeAdapter(FfnSpec).validate_python(FFN_EXAMPLES[name])
    check(spec, build_ffn(spec, D, 3))


def test_every_ffn_is_registered_and_tested() -> None:
    """Mixers likewise: mixers/test_properties.py."""
    assert {kind_of(spec) for spec in SPECS} == set(FFNS) == {example["kind"] for example in FFN_EXAMPLES.values()}


LEAKY_SPEC = '''
"""The leaky integrator's spec."""

from typing import ClassVar, Literal

from ssm.specs.mixers.base import MixerSpecBase, Taxonomy
from ssm.specs.part import Kept, linear


class LeakyMixer(MixerSpecBase):
    """Every channel is averaged over time."""

    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        system="Leaky integrator", paper="Nobody 2026", scan="diagonal_scan", decay="by channel",
        complex=False, recurrence="h_t = a h_{t-1} + x_t,  y_t = h_t",
    )
    kind: Literal["leaky"] = "leaky"

    def heads(self, d_model: int) -> int:
        return 1

    def state_shape(self, d_model: int) -> tuple[int, ...]:
        return (1, d_model)

    def parameters(self, d_model: int) -> int:
        return 2 * linear(d_model, d_model) + d_model  # in and out, a

    def state_numbers(self, d_model: int, context: int) -> int:
        return self.memory_numbers(d_model)

    def kept(self, d_model: int) -> Kept:
        return Kept(2 * d_model)  # x and h
'''
LEAKY_MODULE = '''
"""The leaky integrator."""

import torch
from ssm_kernels import diagonal_scan
from torch import nn

from ssm.models.mixers.base import Mixer


class Leaky(Mixer):
    """State: "memory" h (B, 1, D)."""

    def __init__(self, spec, d_model, n_layers):
        super().__init__(spec, d_model, n_layers)
        self.in_proj = nn.Linear(d_model, d_model, bias=False)
        self.a = nn.Parameter(torch.linspace(-2, 2, d_model))
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, u, state=None, resets=None):
        h0 = None if state is None else state["memory"].squeeze(1)
        h, last = diagonal_scan(torch.sigmoid(self.a), self.in_proj(u), h0, resets=resets)
        return self.out_proj(h.to(u.dtype)), {"memory": last.unsqueeze(1)}

    def step(self, u, state=None):
        y, state = self(u.unsqueeze(1), state)
        return y.squeeze(1), state
'''
LINES = {
    "specs/mixers": ("from ssm.specs.mixers.leaky import LeakyMixer\n", "SPECS: ", "    LeakyMixer,\n"),
    "models/mixers": ("from ssm.models.mixers.leaky import Leaky\n", "MIXERS: ", '    "leaky": Leaky,\n'),
}
USE = """
import json, sys
from pathlib import Path
from ssm.cli.main import main
config, out = Path(sys.argv[1]), Path(sys.argv[2])
assert main(["plan", "--config", str(config)]) == 0
from plan.test_memory import build_model, measured, parameter_count, peak_memory, run_of, state_bytes, torch
run = run_of({"d_model": 64, "n_layers": 3, "mixer": {"kind": "leaky"}}, 256, context=128, batch_tokens=1024)
model = build_model(run.model, 256, seed=0)
_, state = model(torch.zeros(2, 32, dtype=torch.int64))
print(json.dumps({
    "parameters": [parameter_count(run.model, 256), model.parameters_count],
    "state": [2 * state_bytes(run.model, 32), state.nbytes],
    "memory": [peak_memory(run).total, measured(run, out)],
}))
"""


def add_leaky(root: Path) -> None:
    """Two files and a line (with its import) in both registries."""
    newcomer.add(root, {"specs/mixers/leaky.py": LEAKY_SPEC, "models/mixers/leaky.py": LEAKY_MODULE}, LINES)


@pytest.mark.exhaustive
def test_a_newcomer_is_planned_reckoned_and_trained(tmp_path: Path) -> None:
    add_leaky(tmp_path)
    config = write_config(tmp_path / "config")
    models = config / "models.yaml"
    models.write_text(models.read_text().replace("mixer: {kind: mamba2}", "mixer: {kind: leaky}"))
    done = newcomer.python(tmp_path, "-c", USE, str(config), str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["parameters"][0] == found["parameters"][1]
    assert found["state"][0] == found["state"][1]
    assert found["memory"][0] == pytest.approx(found["memory"][1], rel=0.2)


def test_the_command_line_says_what_was_forgotten(tmp_path: Path) -> None:
    add_leaky(tmp_path)
    (tmp_path / "ssm/models/mixers/leaky.py").unlink()
    done = newcomer.python(tmp_path, "-m", "ssm", "plan")
    place = "add ssm/models/mixers/leaky.py, and its line in ssm/models/mixers/__init__.py"
    assert done.stderr == f"ssm plan: ssm/specs/mixers/leaky.py: the spec 'leaky' has no module: {place}\n"
    assert done.returncode == 2
