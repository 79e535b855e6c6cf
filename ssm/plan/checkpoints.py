"""The workflow's jobs for the checkpoints in config/models.yaml: a diagnosis and an extension for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path

from ssm.base.errors import UserError
from ssm.base.files import FINISHED
from ssm.plan.dry_run import capped_checkpoint
from ssm.plan.library import Library
from ssm.plan.resources import CHECKPOINT_BYTES, GOOD, MB, MEMORY_MB, START_SECONDS, TABLE_MB, Need
from ssm.plan.sources import rule_inputs, settings_files, text_files, tokenizer_files, weight_files
from ssm.specs.base import short_hash
from ssm.specs.checkpoint import ANY_CONTEXT, CheckpointSpec
from ssm.specs.config import WorkflowConfig
from ssm.specs.diagnosis import DEFAULT_CONTEXTS
from ssm.specs.extension import BATCH_CONTEXTS, MOST_CHOICE_WINDOWS

Files = tuple[Path, ...] | None  # of the user's; None: one of them is missing
BYTES_PER_PARAMETER = 2  # in a file; with 4 bytes, the job requests more than it needs
UNSEEN_BYTES = 3_000_000_000  # assumed size of weights that are not on this machine yet
TABLES = 6  # of a diagnosis
LAYERS = 64  # assumed number of layers, because no file is read


@dataclass(frozen=True)
class CheckpointJob:
    """A diagnosis or an extension."""

    spec: CheckpointSpec
    extends: bool
    files: Files  # that it reads
    weights_bytes: int
    problem: str = ""  # why a file cannot be read; other jobs can still be made

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
        does = "post-trained for longer sequences" if self.extends else "up to which length can it be trusted?"
        return f"{self.spec.checkpoint}: {does}"

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of the command line, without --out, --device and --threads."""
        return self.spec.extend_words if self.extends else self.spec.diagnose_words

    @property
    def finished(self) -> str:
        """The name of the empty file that marks a finished answer to these arguments."""
        return f".{short_hash(self.words)}{FINISHED}"

    @property
    def version(self) -> str:
        """Eight hex digits: a hash of the arguments and of the files' sizes and times.

        Unfinished work of another version is not continued.
        """
        states = [(str(file), (status := file.stat()).st_size, status.st_mtime_ns) for file in self.files or ()]
        return short_hash([self.words, states])

    def need(self, workflow: WorkflowConfig, gpu: bool) -> Need:
        """The expected needs of the job: its whole time budget, and training like that of a run.

        The size of the files gives an upper bound of the parameters. The memory of activations and logits is not known.
        """
        parameters = (self.weights_bytes or UNSEEN_BYTES) / BYTES_PER_PARAMETER
        diagnoses = 2 + self.spec.control if self.extends else 1
        seconds, disk = START_SECONDS[gpu] + 60 * self.spec.budget * diagnoses, float(TABLES * TABLE_MB * diagnoses)
        memory = 2 * 4 * parameters / MB  # in the file's precision, and in float32
        if self.extends:
            hardware = workflow.hardware
            rate = hardware.cpu_gflops * 1e9 * workflow.threads
            if gpu:
                rate = hardware.gpu_tflops.bfloat16 * 1e12 * hardware.utilization
            arms, context = 1 + self.spec.control, self.spec.context or ANY_CONTEXT
            tokens = self.spec.training_steps * (self.spec.batch_tokens or BATCH_CONTEXTS * context) * arms
            seconds += 6 * parameters * tokens / rate
            if self.spec.trains_nothing:
                # A trial reads its windows three times: once whole, and the restarts read them twice.
                length = self.spec.length or DEFAULT_CONTEXTS * context
                tokens = self.spec.trials(LAYERS) * MOST_CHOICE_WINDOWS * 3 * length
                seconds += 2 * parameters * tokens / rate
                memory = (2 + 2) * 4 * parameters / MB  # also the original and the copy that is tried
                disk += 4 * parameters / MB  # the final model
            else:
                memory = (2 * 12 if gpu else 16 + 12) * parameters / MB
                # The original; three snapshots and the last weights of each arm; a checkpoint and the one that it
                # replaces; the weights for a run that diverges; the final model. The size of passed states is unknown.
                disk += (4 * (1 + 4 * arms) + 2 * CHECKPOINT_BYTES + 4 * GOOD + 4) * parameters / MB
        return Need(int(gpu), workflow.threads, MEMORY_MB[gpu] + ceil(memory), seconds, ceil(disk))


def checkpoint_jobs(library: Library) -> dict[str, CheckpointJob]:
    """Id -> job; two jobs for every checkpoint."""
    specs = [capped_checkpoint(entry, library.workflow.dry_run) for entry in library.checkpoints.values()]
    listed = cache(text_files)  # both jobs of a checkpoint read its text
    return {job.id: job for spec in specs for job in (_job(spec, extends, listed) for extends in (False, True))}


def _job(spec: CheckpointSpec, extends: bool, listed: Callable[[tuple[str, ...]], Files]) -> CheckpointJob:
    try:
        weights = weight_files(spec.checkpoint)
        read = [weights, settings_files(spec.checkpoint), tokenizer_files(spec.tokenizer), listed(spec.text)]
        if extends and spec.held_out:
            read.append(listed(spec.held_out))
        size = sum(file.stat().st_size for file in weights or ())
        return CheckpointJob(spec, extends, rule_inputs(*read), size)
    except UserError as error:
        return CheckpointJob(spec, extends, (), 0, str(error))
