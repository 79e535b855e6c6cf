"""A small config folder for tests: one model, one data set, two figures that share the run `base`."""

from __future__ import annotations

from pathlib import Path

import yaml

FILES = {
    "config.yaml": """
scale: smoke
figures: all
""",
    "models.yaml": """
tiny: {d_model: 16, n_layers: 1, mixer: {kind: mamba2, d_state: 8, head_dim: 16}, peak_lr: 4e-3}
large:
  d_model: {paper: 512}
  n_layers: 12
  mixer: {kind: mamba2}
  peak_lr: 1e-3
  published_parameters: 45_000_000
""",
    "data.yaml": """
text: {corpus: {kind: stdlib}}
keys: {task: passkey, mix: [{length: 256}]}
digits: {task: pixels, images: {kind: digits}, examples: 1297}
""",
    "training.yaml": """
recipes:
  pretrain: {context: {smoke: 32, paper: 2048}, batch_tokens: {smoke: 128, paper: 524_288}, budget: {steps: 100}}
  posttrain: {context: 32, batch_tokens: 128, budget: {steps: 20}, lr_scale: 0.1, schedule: constant, warmup: 10}
initial_states:
  zero: {policy: zero}
  random_noise: {policy: random_noise, sigma: 0.03, p_zero: 0.05}
  state_passing: {policy: state_passing}
""",
    "figures/lg_fig4.yaml": """
paper: lg
title: Norm of the state
caption: The norm.
setting: The paper's.
models: [tiny]
data: text
seeds: [1]
arms:
  base: {label: Base, training: pretrain}
measurements:
  - {kind: state_statistics, times_context: 8}
drawings:
  - {kind: state_norm}
""",
    "figures/lg_fig5.yaml": """
paper: lg
title: Interventions
caption: The curves.
setting: The paper's.
headline: true
models: [tiny]
data: text
seeds: [1]
arms:
  base: {label: Base, training: pretrain}
  state_passing: {label: State Passing, from: base, training: posttrain, initial_state: state_passing}
measurements:
  - {kind: position_loss, times_context: 16}
drawings:
  - {kind: position_curves}
claims:
  - id: repaired
    says: It is repaired.
    paper: Flat.
    quantity: {kind: perplexity_growth, arm: state_passing, times_context: 16}
    expected: {below: 1.1}
""",
}


def write_config(folder: Path) -> Path:
    """Write the small config folder."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.lstrip(), encoding="utf-8")
    return folder


def edit(folder: Path, name: str, old: str, new: str) -> None:
    """Replace `old`, which occurs once in a file of the folder."""
    text = (folder / name).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {name}"
    (folder / name).write_text(text.replace(old, new), encoding="utf-8")


def figure(folder: Path, target: str, **changed: object) -> None:
    """Write a figure like lg_fig5, of the paper that its target names, with some keys changed."""
    usual = {"paper": target.partition("_")[0], "claims": [], "headline": False}
    content = yaml.safe_load(FILES["figures/lg_fig5.yaml"]) | usual | changed
    (folder / "figures" / f"{target}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
