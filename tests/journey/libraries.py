"""Check that models of other libraries can be repaired and work in their library afterwards.

    python tests/journey/libraries.py                 every library
    python tests/journey/libraries.py fla mamba_ssm   some libraries

The script trains models of transformers, fla and mamba_ssm with the library's own forward pass, and saves them with its
own method. `ssm diagnose` must find that they break. `ssm extend` repairs them by State Passing and, if the class
allows it, without training. The script runs the commands that `ssm extend` prints. The library must then compute the
logits of ssm, and the losses by which `ssm extend` chose, on the same windows. lm-evaluation-harness reads a model
before and after, on a task of local text. It must compute the same number as transformers' own forward pass. Exit code:
0 as expected, 1 not. It takes about a minute per model on an idle core.

mamba_ssm must be on PYTHONPATH; `make libraries` builds it without its CUDA part.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

import torch
from harness import world
from journey.agreement import agrees, differences
from journey.peers import CONTEXT, PEERS, Mamba2, Peer
from printed import commands
from small import text
from torch import Tensor

ROOT = Path(__file__).parents[2]
TEXTS = {"train": range(40), "extend": range(40, 110), "first": range(110, 130)}
WORDS = 900  # of a document, about 4,200 bytes
# The defaults, except that a repair of a small model raises its perplexity in its context of 16 bytes.
READING = f"--context {CONTEXT} --length 1024"
EXTENDING = f"--text texts/extend {READING} --in-context-tolerance 0.5"
TRAINING = "--steps 60 --lr 3e-3"
GAINED = ("repaired", "improved")
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


class Check:
    """The checks of one model, in its own folder. `failed` collects what is not as expected."""

    def __init__(self, folder: Path):
        self.folder, self.failed = folder, list[str]()

    def type(self, command: str) -> list[str]:
        """Run a shell command in the folder, and return the lines that it prints."""
        print(f"\n$ {command}", flush=True)
        path = [str(ROOT), str(ROOT / "kernels"), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=os.environ
            | OFFLINE
            | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
            | {"PYTHONPATH": os.pathsep.join([*path, str(self.folder)])},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = done.stdout.splitlines()
        print("\n".join(lines), flush=True)
        if done.returncode:
            print(done.stderr, flush=True)
            raise subprocess.CalledProcessError(done.returncode, command)
        return lines

    def expect(self, what: str, true: bool) -> None:
        """Print whether a condition is true, and record it if not."""
        print(f"{'yes' if true else 'NO '}: {what}", flush=True)
        if not true:
            self.failed.append(what)

    def write_texts(self) -> None:
        """Write files into three folders without common documents."""
        for part, numbers in TEXTS.items():
            (self.folder / "texts" / part).mkdir(parents=True)
            for number in numbers:
                (self.folder / "texts" / part / f"{number:03}.txt").write_text(text(number, WORDS))

    def make(self, peer: Peer) -> None:
        """Write the user's model into theirs/."""
        self.write_texts()
        print(f"\n# {peer.library}: {peer.title}, trained for {peer.steps} steps of its own forward pass", flush=True)
        files = sorted((self.folder / "texts" / "train").iterdir())
        trained = torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8)
        peer.save(trained.long(), self.folder / "theirs")

    def extend(self, peer: Peer, policy: str) -> list[str]:
        """Repair the model, and compare the result with its library. Returns the lines that `ssm extend` printed."""
        more = "" if policy in peer.repairs else f" {TRAINING}"
        said = self.type(f"ssm extend theirs {EXTENDING} --policy {policy}{more} -o {policy}")
        result = json.loads((self.folder / policy / "result.json").read_text())
        self.expect(f"{policy}: a model was gained ({result['outcome']})", result["outcome"] in GAINED)
        if result["outcome"] in GAINED:
            original, new = (peer.load(self.folder / name) for name in ("theirs", f"{policy}/model"))
            found = differences(self.folder / policy, partial(peer.logits, original), partial(peer.logits, new))
            worst = max(value for name, value in found.items() if name != "logits")
            say = f"{peer.library} itself: its losses are off by {worst:.1g} nats, its logits by {found['logits']:.1g}"
            self.expect(say, agrees(found))
        return said


def check_library(peer: Peer, folder: Path) -> list[str]:
    """Repair a model of a library, and load it there. Returns what was not as expected."""
    check = Check(folder)
    check.make(peer)
    check.type(f"ssm diagnose theirs --text texts/first {READING} -o before")
    outcome = json.loads((folder / "before" / "diagnosis.json").read_text())["verdict"]["outcome"]
    check.expect(f"it {outcome}", outcome == "breaks")
    said = check.extend(peer, "state_passing")
    for policy in peer.repairs:
        check.extend(peer, policy)
    (folder / "selective_scan_cuda.py").touch()  # `import mamba_ssm` needs this module of the GPU
    for command in filter(None, [commands(said).get(peer.library)]):
        first = check.type(command.replace("cuda", "cpu"))[0]  # the rest of the command is as printed
        name = type(peer.load(folder / "theirs")).__name__
        check.expect(f"{peer.library} loads it with the command that was printed", first == f"{name}(")
    return check.failed


def check_harness(folder: Path) -> list[str]:
    """Measure a repaired model with lm-evaluation-harness. Returns what was not as expected."""
    check, peer = Check(folder), Mamba2()
    check.make(peer)
    printed = commands(check.extend(peer, "state_passing"))[HARNESS]
    documents = [file.read_text() for file in sorted((folder / "texts" / "first").iterdir())]
    (folder / "tasks").mkdir()
    world.task(folder / "tasks", "rolling", [{"text": document} for document in documents])
    command, _, named = printed.rpartition(" --tasks ")
    check.expect(f"the command that was printed asks for {named}, which come from the network", bool(command))
    check.type(f"{command} --tasks local_rolling --include_path tasks --batch_size 4 --output_path after")
    (file,) = (folder / "after").rglob("results_*.json")
    found = json.loads(file.read_text())["results"]["local_rolling"]["bits_per_byte,none"]
    before, own = (
        bits_per_byte(partial(peer.logits, peer.load(folder / model)), documents)
        for model in ("theirs", "state_passing/model")
    )
    same = math.isclose(found, own, rel_tol=1e-5)
    check.expect(f"{found:.4f} bits per byte; by transformers' own forward pass {own:.4f}", same)
    check.expect("the harness sees the repair", found < 0.9 * before)
    return check.failed


def bits_per_byte(logits: Callable[[Tensor], Tensor], documents: list[str]) -> float:
    """Bits per byte of whole documents after a newline."""
    nats = 0.0
    for document in documents:
        tokens = torch.tensor([[world.NEWLINE, *document.encode()]])
        values = torch.log_softmax(logits(tokens[:, :-1]).double(), -1)  # (1, T, V)
        nats -= float(values.gather(-1, tokens[:, 1:, None]).sum())
    return nats / math.log(2) / sum(len(document.encode()) for document in documents)


HARNESS = "lm-evaluation-harness"
LIBRARIES = ("transformers", "fla", HARNESS, "mamba_ssm")  # once mamba_ssm is imported, transformers calls its kernels


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help=f"one of {', '.join(LIBRARIES)} (default: all)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write all files into this folder, and keep them")
    args = parser.parse_args()
    unknown = set(args.libraries) - set(LIBRARIES)
    if unknown:
        parser.error(f"{min(unknown)}: expected one of {', '.join(LIBRARIES)}")
    torch.set_num_threads(1)
    failed: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="libraries-") as scratch:
        folder = (args.keep or Path(scratch)).absolute()
        for library in (name for name in LIBRARIES if name in (args.libraries or LIBRARIES)):
            for made in PEERS.get(library, ()):
                peer = made()
                failed[f"{library}, {peer.title}"] = check_library(peer, folder / library / peer.title)
            if library == HARNESS:
                failed[library] = check_harness(folder / library)
    print("")
    for name, what in failed.items():
        print(f"{name}: {'as expected' if not what else '; '.join(f'NOT {text}' for text in what)}")
    return int(any(failed.values()))


if __name__ == "__main__":
    sys.exit(main())
