"""What the workflow makes of the checkpoints in config/models.yaml: of each a diagnosis and an extension."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from ssm.plan.dry_run import capped_checkpoint
from ssm.plan.library import Library
from ssm.plan.resources import CHECKPOINT_BYTES, GOOD, MB, MEMORY_MB, START_SECONDS, TABLE_MB, Need
from ssm.plan.sources import settings_files, text_files, tokenizer_files, weight_files
from ssm.specs.checkpoint import ANY_CONTEXT, CheckpointSpec
from ssm.specs.config import WorkflowConfig
from ssm.specs.diagnosis import OCTAVES
from ssm.specs.extension import MOST, SEQUENCES

BYTES_PER_PARAMETER = 2  # in a file; where it has more, more is asked for than is needed
UNSEEN_BYTES = 3_000_000_000  # of weights that are not on this machine yet
TABLES = 6  # of a diagnosis
LAYERS = 64  # of a model that nobody has looked into, at most


@dataclass(frozen=True)
class CheckpointJob:
    """A diagnosis or an extension."""

    spec: CheckpointSpec
    extends: bool
    files: tuple[Path, ...] | None  # of the user's, that it reads; None: one of them is not there
    weights_bytes: int

    @property
    def what(self) -> str:
        return "extension" if self.extends else "diagnosis"

    @property
    def id(self) -> str:
        """Its folder below <results>/<scale>/checkpoints."""
        return f"{self.spec.name}/{self.what}"

    @property
    def target(self) -> str:
        return self.spec.targets[self.extends]

    @property
    def title(self) -> str:
        does = "post-trained to read on beyond its context" if self.extends else "up to where can it be trusted?"
        return f"{self.spec.checkpoint}: {does}"

    @property
    def words(self) -> tuple[str, ...]:
        """Of the command line, but for --out, --device and --threads."""
        return self.spec.extend_words if self.extends else self.spec.diagnose_words

    @property
    def version(self) -> str:
        """Eight hex digits of what is asked and of which files, by their sizes and times: unfinished work of another
        version is not gone on with."""
        states = [(str(file), status.st_size, status.st_mtime_ns) for file, status in _present(self.files or ())]
        return hashlib.sha256(json.dumps([self.words, states]).encode()).hexdigest()[:8]

    def need(self, workflow: WorkflowConfig, gpu: bool) -> Need:
        """What it is expected to take: all of its budgets, and training as of any run.

        An upper bound of parameters is known from the files' size; what activations and logits take is not.
        """
        parameters = (self.weights_bytes or UNSEEN_BYTES) / BYTES_PER_PARAMETER
        diagnoses = 2 + self.spec.control if self.extends else 1
        seconds, disk = START_SECONDS[gpu] + 60 * self.spec.budget * diagnoses, float(TABLES * TABLE_MB * diagnoses)
        memory = 2 * 4 * parameters / MB  # as they lie on disk, and in float32
        if self.extends:
            hardware = workflow.hardware
            rate = hardware.cpu_gflops * 1e9 * workflow.threads
            if gpu:
                rate = hardware.gpu_tflops.bfloat16 * 1e12 * hardware.utilization
            arms, context = 1 + self.spec.control, self.spec.context or ANY_CONTEXT
            tokens = self.spec.training_steps * (self.spec.batch_tokens or SEQUENCES * context) * arms
            seconds += 6 * parameters * tokens / rate
            if self.spec.trains_nothing:
                # Windows that choose, read whole and restarted, which is all of them twice: a trial.
                tokens = self.spec.trials(LAYERS) * MOST * 3 * (self.spec.length or OCTAVES * context)
                seconds += 2 * parameters * tokens / rate
                memory = (2 + 2) * 4 * parameters / MB  # and the original and its copy that is tried
                disk += 4 * parameters / MB  # the model that is taken home
            else:
                memory = (2 * 12 if gpu else 16 + 12) * parameters / MB
                # The original, three snapshots and the end; a checkpoint, the one that it replaces, and what a run that
                # diverges goes back to; the model that is taken home. States passed on are not known before it is.
                disk += (4 * (1 + 4 * arms) + 2 * CHECKPOINT_BYTES + 4 * GOOD + 4) * parameters / MB
        return Need(int(gpu), workflow.threads, MEMORY_MB[gpu] + ceil(memory), seconds, ceil(disk))


def checkpoint_jobs(library: Library) -> dict[str, CheckpointJob]:
    """Id -> job, two of every checkpoint."""
    jobs = []
    for entry in library.checkpoints.values():
        spec = capped_checkpoint(entry, library.workflow.dry_run)
        weights = weight_files(spec.checkpoint)
        size = sum(status.st_size for _, status in _present(weights or ()))
        read = [weights, settings_files(spec.checkpoint), tokenizer_files(spec.tokenizer), text_files(spec.text)]
        jobs.append(CheckpointJob(spec, False, _together(read), size))
        held_out = text_files(spec.held_out) if spec.held_out else ()
        jobs.append(CheckpointJob(spec, True, _together([*read, held_out]), size))
    return {job.id: job for job in jobs}


def _together(parts: Iterable[tuple[Path, ...] | None]) -> tuple[Path, ...] | None:
    """All files, each once; None if one of the parts is None."""
    found: dict[Path, None] = {}
    for part in parts:
        if part is None:
            return None
        found |= dict.fromkeys(part)
    return tuple(found)


def _present(files: Iterable[Path]) -> list[tuple[Path, os.stat_result]]:
    """Every file with its status."""
    return [(file, file.stat()) for file in files]
