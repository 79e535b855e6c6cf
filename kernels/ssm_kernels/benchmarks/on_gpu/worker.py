"""A worker process: reads the names of tasks from its input, does them, and answers with one line of JSON for each.

    python -m ssm_kernels.benchmarks.on_gpu.worker STAGE --out DIR [--rehearse]              the loop
    python -m ssm_kernels.benchmarks.on_gpu.worker STAGE --out DIR [--rehearse] --task NAME  one task

The exit code of a task is 0 if it passed, 1 if it failed, and 3 if it was skipped.

The first line of the loop has the names of all tasks and the device. After an error that breaks the CUDA context, the
worker answers and ends: every later call of CUDA would fail.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ssm.base.parent import die_with_parent
from ssm_kernels.benchmarks.on_gpu import machine
from ssm_kernels.benchmarks.on_gpu.stages import WITHOUT_DEVICE
from ssm_kernels.benchmarks.on_gpu.task import Setting, TaskError, TaskSkippedError

SKIPPED = 3  # exit code of a skipped task


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("stage")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--task")
    args = parser.parse_args(words)
    die_with_parent(signal.SIGKILL)
    setting = Setting(args.rehearse, args.out, Path(__file__).parents[4])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to the log
    try:
        on_device = args.stage not in WITHOUT_DEVICE
        if setting.rehearse and on_device:
            from ssm_kernels.benchmarks.on_gpu import stand_ins

            stand_ins.install()
        module = importlib.import_module(f"ssm_kernels.benchmarks.on_gpu.{args.stage}")
        if args.task is not None:
            answer = _done(module, setting, args.task)
            print(answer.get("reason", "passed"), file=answers)
            return {"passed": 0, "failed": 1, "skipped": SKIPPED}[answer["state"]]
        hello = {"names": module.names(setting), "device": machine.device(setting.device) if on_device else {}}
    except Exception as error:
        traceback.print_exc()
        _say(answers, {"error": _line(error)})
        return 1
    _say(answers, hello)
    for line in sys.stdin:
        answer = _done(module, setting, line.strip())
        _say(answers, answer)
        if answer["broken"]:
            return 1
    return 0


def called(
    command: Sequence[str], folder: Path | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command that ends with this process. Its output also goes to the log.

    Args:
        folder: where it runs; None: in this folder.
        variables: its environment; None: that of this process.
    """
    ends = partial(die_with_parent, signal.SIGKILL)
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, preexec_fn=ends)
    sys.stderr.write(done.stdout + done.stderr)
    return done


def _done(module: Any, setting: Setting, name: str) -> dict[str, Any]:
    start = time.monotonic()
    answer: dict[str, Any] = {"state": "passed"}
    try:
        answer["result"] = module.run(setting, name)
    except TaskSkippedError as error:
        answer = {"state": "skipped", "reason": _line(error)}
    except TaskError as error:
        answer = {"state": "failed", "reason": _line(error)} | ({"result": error.found} if error.found else {})
    except Exception as error:
        traceback.print_exc()
        answer = {"state": "failed", "reason": f"{type(error).__name__}: {_line(error)}"}
    return answer | {"seconds": round(time.monotonic() - start, 2), "broken": _broken(setting)}


def _broken(setting: Setting) -> bool:
    """Whether no later call of CUDA can work. Also frees memory for the next task."""
    torch: Any = sys.modules.get("torch")
    if setting.rehearse or torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
        gc.collect()  # a model has cycles
        torch.cuda.empty_cache()
    except RuntimeError:
        return True
    return False


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def _say(answers: Any, message: dict[str, Any]) -> None:
    print(json.dumps(message), file=answers, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
