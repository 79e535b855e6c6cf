"""Repair a checkpoint that breaks, and check that another one that holds is not trained.

    python tests/journey/journey.py

The script trains two small models like those of lg_fig5 at scale smoke. Mamba-2 with the stress initialization breaks
far beyond its context; with the standard initialization it does not. Each becomes a checkpoint of transformers. The
rest uses only this folder and text files. `ssm diagnose`, `ssm extend` and again `ssm diagnose` run on different files.
`ssm extend` also runs with its defaults, on one file. At the end, transformers' own Mamba2ForCausalLM measures both
folders and must agree. Exit code: 0 as expected, 1 not. It takes about eight minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

import numpy as np
import torch
import torch.nn.functional as F
from small import write_checkpoint
from transformers import Mamba2ForCausalLM

from ssm.data.build import split_of
from ssm.data.corpora import documents
from ssm.extension.outcome import IMPROVED, NOTHING, REPAIRED
from ssm.models.weights_file import load_model
from ssm.plan import load_config, make_plan
from ssm.specs.diagnosis_defaults import TOLERANCE
from ssm.specs.training import RunSpec

ROOT = Path(__file__).parents[2]
CONTEXT, LENGTH = 32, 2048
# The post-training of scale smoke with more steps: after 200 steps, a ratio of 1.11 (1.06 to 1.16) does not decide
# whether the model holds. A small model loses some percent of perplexity in its context of 32 bytes.
RECIPE = ["--policy", "state_passing", "--steps", "500", "--lr", "8e-4", "--batch-tokens", "512"]
RECIPE += ["--p-zero", "0.05", "--in-context-tolerance", "0.1", "--control"]
WINDOWS = 128  # windows that transformers reads


@dataclass(frozen=True)
class Texts:
    """Four sets of files that the base models have not seen."""

    first: Path  # for the first diagnosis
    extend: Path  # for training
    held_out: Path  # for the choice and the extension's diagnoses: more than 64 windows each
    last: Path  # for the last diagnosis
    one: Path  # all of `extend` in one file


def ssm(*arguments: object) -> None:
    """Run a command of ssm in a new process, as a user does."""
    words = [str(argument) for argument in arguments]
    print(f"\n$ ssm {' '.join(words)}", flush=True)
    subprocess.run([sys.executable, "-m", "ssm.cli.main", *words], cwd=ROOT, check=True)


def base_runs(seed: int) -> dict[str, RunSpec]:
    """The runs of the two models, as lg_fig5 trains them at scale smoke."""
    library = load_config(ROOT / "config", "smoke", ["lg_fig5"])
    runs = make_plan(library).runs.values()
    found = {run.model.name: run for run in runs if run.parent is None and run.seed == seed}
    return {"breaks": found["mamba2-slow"], "holds": found["mamba2-standard"]}


def write_texts(run: RunSpec, folder: Path) -> Texts:
    """Write the held-out documents of the run's corpus as files into four folders."""
    texts = Texts(*(folder / name for name in ("first", "extend", "held_out", "last", "one.txt")))
    places = (texts.first, texts.extend, texts.held_out, texts.last)
    for place in places:
        place.mkdir(parents=True)
    corpus = enumerate(documents(run.data.corpus))
    held_out = [document.text for i, document in corpus if split_of(run.data, i) == "held_out"]
    for number, text in enumerate(held_out):
        (places[number % 4] / f"{number:04}.txt").write_bytes(text)
    texts.one.write_bytes(b"\n".join(path.read_bytes() for path in sorted(texts.extend.iterdir())))
    return texts


def ratio_of_transformers(folder: Path, text: Path) -> tuple[float, float, float]:
    """The paired ratio at [3/4 L, L) by transformers' own forward pass, with its 95% interval over windows."""
    model = Mamba2ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    content = b"".join(path.read_bytes() for path in sorted(text.iterdir()))
    tokens = torch.frombuffer(bytearray(content), dtype=torch.uint8).long()
    every = tokens[: len(tokens) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    windows = every[:: len(every) // WINDOWS][:WINDOWS]  # (W, L + 1), spread over the text, because neighbors are alike
    half, first = CONTEXT // 2, LENGTH * 3 // 4
    excess = []
    with torch.inference_mode():
        for part in windows.split(16):
            full = losses(model, part)[:, first:].mean(1)  # (w,)
            restarted = part[:, first - half :].unfold(1, CONTEXT + 1, half)  # (w, n, T + 1)
            alone = losses(model, restarted.flatten(0, 1))[:, half:].reshape(len(part), -1).mean(1)
            excess.append(full - alone)
    values = torch.cat(excess).double().numpy()
    error = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    return tuple(float(np.exp(values.mean() + by)) for by in (0.0, -error, error))  # type: ignore[return-value]


def losses(model: Mamba2ForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """tokens (B, T + 1) -> the loss of every target, (B, T)."""
    logits = model(tokens[:, :-1], use_cache=False).logits  # (B, T, V)
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none").view(len(tokens), -1)


def record(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=31, metavar="S", help="one of lg_fig5's first three (default: 31)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write all files into this folder, and keep them")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="journey-") as scratch:
        return int(not check(args.keep or Path(scratch), args.seed))


def check(folder: Path, seed: int) -> bool:
    """Check both models. Returns whether all is as expected."""
    runs = base_runs(seed)
    texts = write_texts(runs["breaks"], folder / "texts")
    specs = folder / "specs"
    ssm("plan", "--scale", "smoke", "--figures", "lg_fig5", "--write", specs)
    ssm("tokenize", specs / "data" / f"{runs['breaks'].data.id}.json", "--out", folder / "tokens")
    as_expected = {name: check_model(folder, specs, texts, name, run) for name, run in runs.items()}
    return all(as_expected.values())


def check_model(folder: Path, specs: Path, texts: Texts, name: str, run: RunSpec) -> bool:
    """Train, export, diagnose, extend, diagnose. Returns whether the verdicts fit `name` and transformers agrees."""
    trained, checkpoint, place = folder / "runs" / run.id, folder / f"{name}-checkpoint", folder / name
    ssm("train", specs / "runs" / f"{run.id}.json", "--tokens", folder / "tokens", "--out", trained, "--threads", 1)
    model, _ = load_model(trained / "model.safetensors")
    write_checkpoint(model, "mamba2", checkpoint)
    reading = ["--context", CONTEXT, "--length", LENGTH]
    ssm("diagnose", checkpoint, "--text", texts.first, *reading, "-o", place / "before")
    held_out = ["--held-out", texts.held_out]
    ssm("extend", checkpoint, "--text", texts.extend, *held_out, *reading, *RECIPE, "-o", place / "extended")
    ssm("extend", checkpoint, "--text", texts.one, *reading, "-o", place / "plain")
    plain = record(place / "plain" / "result.json")["outcome"]
    outcomes = [record(place / "before" / "diagnosis.json")["verdict"]["outcome"]]
    ratios = {"before": ratio_of_transformers(checkpoint, texts.first)}
    exported = place / "extended" / "model"
    if exported.exists():
        ssm("diagnose", exported, "--text", texts.last, *reading, "-o", place / "after")
        outcomes.append(record(place / "after" / "diagnosis.json")["verdict"]["outcome"])
        ratios["after"] = ratio_of_transformers(exported, texts.last)
    print(f"\n{name}: verdicts {', '.join(outcomes)}; with the defaults: {plain}")
    for when, (value, low, high) in ratios.items():
        print(f"  transformers' own forward, {when}: paired ratio {value:.3f} ({low:.3f}-{high:.3f})")
    if name == "breaks":
        # Claims of lg_fig5: a broken model is above 1.5, a repaired one below 1.25. A small model ends near 1.1, the
        # verdict's tolerance. So the verdict may be "not decided".
        mended = len(outcomes) == 2 and outcomes[1] != "breaks"
        gained = plain in (REPAIRED, IMPROVED) and (place / "plain" / "model").is_dir()
        return outcomes[0] == "breaks" and mended and gained and ratios["before"][0] > 1.5 and ratios["after"][0] < 1.25
    return outcomes == ["holds"] and plain == NOTHING and ratios["before"][0] < TOLERANCE


if __name__ == "__main__":
    sys.exit(main())
