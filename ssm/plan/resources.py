"""What every job of a plan needs: GPUs, CPUs, memory, time and disk. It is computed from specs; nothing is measured.

Operations: a forward pass has the operations of ssm/plan/parameters.py. A training token takes three forward passes
(one forward, two backward), or four with activation checkpointing. Where answers are written token by token, each pass
also handles the cache of attention.

Time: the values are in config.yaml: hardware. On a GPU, a job takes its operations divided by (peak x utilization).
It takes at least `layer_ms` for each layer and training batch, because Python and kernel launches need time. Training
has the peak of its precision, measurements have that of float32. On a CPU, a thread does `cpu_gflops`, and each layer
and batch adds `cpu_layer_ms`. In training, each step of a GRU adds a share of that.

GPUs and memory: a run takes 2, 4, 8 ... GPUs if its peak memory (ssm/plan/memory.py) does not fit into one or it takes
too long. The limit is config.yaml: gpus_per_run. Each process trains its share of a batch. On a CPU, the memory that an
allocator holds unused is added.

A checkpoint holds 12 bytes for each parameter (weights and AdamW's moments) and what the initial-state policy
remembers. With State Passing and TBTT these are the states of the whole batch, which can be larger. With GPUs, the host
holds a copy for every process that reads it, and another copy while it is written. If there are several processes, the
first one also holds the states of all others when it joins them.

Disk: a run keeps its weights, its snapshots and its last checkpoint, which holds only the weights again. While it
trains, it has two whole checkpoints when it replaces one. It also has two sets of weights in case it diverges; then it
keeps them, and a whole checkpoint, which is not counted. A token in a store takes 2 bytes, or 4 if the vocabulary has
more than 65,536 tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path

from ssm.base.errors import ConfigError
from ssm.plan.memory import graph_bytes, peak_memory, policy_bytes
from ssm.plan.parameters import operations_per_pass, operations_per_token, parameter_count
from ssm.plan.plan import Plan
from ssm.plan.sources import text_bytes
from ssm.specs.config import Cluster, Hardware, WorkflowConfig
from ssm.specs.data import BytesTokenizer, Data
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.base import OfRun, OfWindows
from ssm.specs.repairs import RepairSpec
from ssm.specs.training import RunSpec

MB = 1e6
# The keys True and False: with and without a GPU. With one, a job starts Python, torch and the GPU, and reads weights.
# Without one, it is forked from a process that has imported everything.
START_SECONDS = {True: 30.0, False: 0.4}
LEAST_SECONDS = 600.0  # a job requests at least this: shared disks can be slow, and short jobs start early anyway
AROUND_SECONDS = 180.0  # of a time limit: a job's start and its last step, without checkpoints
DISK_RATE = 200.0  # MB/s of one job, assumed for a shared disk that others use too
CHECKPOINTS_A_JOB = 3  # one is read at the start, one written at the end, and perhaps one shortly before that
ATTEMPTS = 4  # the first attempt of a job, and the retries of the slurm profile
MEMORY_MB = {True: 6000, False: 2000}  # of any job: Python, torch, and the libraries of a GPU
HELD_BACK = 1.5  # memory of a process as a multiple of what it uses: the C library keeps freed memory
STEP_LAYERS = 1 / 16  # a step of a recurrence that is not linear adds this share of a layer's time on a CPU (a GRU's)
CHECKPOINT_BYTES = 12  # for each parameter
GOOD = 2  # sets of weights that a run keeps while it trains, to return to if it diverges
PASS_TOKENS = {True: 131_072, False: 2048}  # in a measurement's forward pass
TOKENIZE_CPUS = 16  # or all of the machine, if it has fewer
TOKENIZE_RATE = 200_000  # tokens per second and thread
TOKEN_BYTES = 3  # of a token that is not a byte; English in large vocabularies has about 4
ROW_BYTES = 16  # of a compressed table with many rows
METRICS_BYTES = 64  # of the row of a training step
TABLE_MB = 1  # other tables


@dataclass(frozen=True)
class Need:
    """The expected needs of a job.

    Attributes:
        memory_mb: of the host.
        disk_mb: at the job's peak.
        gpu_memory_mb: of each GPU, without its libraries (1 GB). For measurements: weights and a backward pass.
        passing_mb: the part of disk_mb that is free again after the job.
        checkpoint_mb: the size of a checkpoint of training.
    """

    gpus: int
    cpus: int
    memory_mb: int
    seconds: float
    disk_mb: int
    gpu_memory_mb: int = 0
    passing_mb: int = 0
    checkpoint_mb: float = 0.0

    @property
    def kept_mb(self) -> int:
        """MB on the disk after the job."""
        return self.disk_mb - self.passing_mb

    @property
    def gpu_hours(self) -> float:
        return self.gpus * self.seconds / 3600

    @property
    def disk_seconds(self) -> float:
        """The time for the checkpoints that delay a job's end."""
        return CHECKPOINTS_A_JOB * self.checkpoint_mb / DISK_RATE

    def minutes_to_request(self, cluster: Cluster, attempt: int = 1, share: float = 1.0) -> int:
        """Minutes to request from a batch system: the expected time with a margin, times the attempt, up to the limit.

        Args:
            share: of the limit, if several tables are made by one job (ssm/plan/job_packing.py).
        """
        seconds = max(LEAST_SECONDS, cluster.time_margin * (self.seconds + self.disk_seconds))
        most = floor(60 * cluster.max_hours * share + 1e-6)  # integer apart from rounding errors
        return max(1, min(attempt * ceil(seconds / 60), most))

    def seconds_to_train(self, minutes: int) -> int:
        """Seconds of a job's time limit for training: at least half. The rest is for its start and checkpoints."""
        return round(max(60 * minutes - AROUND_SECONDS - self.disk_seconds, 30 * minutes))

    def memory_to_request(self, attempt: int) -> int:
        """MB; the second attempt gets twice as much, and so on."""
        return self.memory_mb * attempt


def takes_gpus(workflow: WorkflowConfig, cluster: bool = False, here: bool = False) -> bool:
    """Whether training and measuring jobs use a GPU.

    Args:
        cluster: the jobs run on a cluster, so the GPU of this machine does not matter.
        here: whether this machine has a GPU.

    Raises:
        ConfigError: nobody has configured whether the cluster has GPUs. A job only gets a GPU if it requests one.
    """
    if workflow.device != "auto":
        return workflow.device == "cuda"
    if workflow.cluster.gpu_partition is not None:
        return True
    if cluster:
        raise ConfigError(
            "config.yaml: device: 'auto' cannot know whether a cluster has GPUs; set device=cuda or device=cpu, or "
            "set cluster.gpu_partition"
        )
    return here


def needs(
    plan: Plan, workflow: WorkflowConfig, gpu: bool, sources: Mapping[str, Collection[Path] | None] | None = None
) -> dict[str, Need]:
    """Run, table or data id -> the needs of its job.

    Args:
        gpu: whether training and measuring jobs use a GPU. Otherwise they use the configured CPU threads.
        sources: data id -> the files of its text, which are tokenized whole. Without them, the size of a text follows
            from the longest run that reads it.
    """
    estimator = _Estimator(workflow.hardware, workflow.threads, gpu)
    needs_of = {name: estimator.run(run) for name, run in plan.runs.items()}
    needs_of |= {name: estimator.measuring(task) for name, task in plan.measurements.items()}
    most: dict[str, int] = {}
    for run in plan.runs.values():
        name = run.data.id
        most[name] = max(most.get(name, 0), training_tokens(run))
    files = sources or {}
    return needs_of | {
        name: _tokenizing(data, most.get(name, 0), files.get(name), gpu) for name, data in plan.data.items()
    }


def training_tokens(run: RunSpec) -> int:
    """Tokens that a run trains on, without those of its parents."""
    return _steps(run) * run.training.batch_tokens


def _steps(run: RunSpec) -> int:
    parameters = parameter_count(run.own_model, run.data.vocab_size, run.data.channels)
    return run.training.budget.optimizer_steps(run.training.batch_tokens, parameters)


def _tokenizing(data: Data, read: int, files: Collection[Path] | None, gpu: bool) -> Need:
    """The needs of tokenizing the `files`; without any, of the `read` tokens of the longest run on the store."""
    width, tokens, text = 2 if data.vocab_size <= 2**16 else 4, data.stored_tokens(read), data.text
    if files and text is not None and text.max_documents is None:
        tokens = text_bytes(files) // (1 if isinstance(text.tokenizer, BytesTokenizer) else TOKEN_BYTES)
    seconds = START_SECONDS[gpu] + tokens / (TOKENIZE_RATE * TOKENIZE_CPUS)
    return Need(0, TOKENIZE_CPUS, 2 * MEMORY_MB[False], seconds, ceil(width * tokens / MB))


def _weights_mb(run: RunSpec) -> float:
    return 4 * parameter_count(run.own_model, run.data.vocab_size, run.data.channels) / MB


def _starting_mb(run: RunSpec) -> float:
    """MB of weights in one process when a run starts that takes layers of its parent: its own, and its parent's twice.

    If the run diverges, they are needed again in addition to training (ssm/training/finalize.py).
    """
    return 0.0 if run.parent is None or run.layer is None else _weights_mb(run) + 2 * _weights_mb(run.parent)


@dataclass(frozen=True)
class _Estimator:
    """The arithmetic on one kind of machine."""

    hardware: Hardware
    threads: int
    gpu: bool

    def run(self, run: RunSpec) -> Need:
        if run.repair is not None:
            return self.repairing(run, run.repair)
        return self.training(run) if _steps(run) else self.without_training(run)

    def repairing(self, run: RunSpec, repair: RepairSpec) -> Need:
        """Every trial reads its windows with a copy of the weights."""
        weights, length = _weights_mb(run), repair.length(run.training.context)
        tokens = repair.tokens_read(run.own_model, run.training.context)
        operations = tokens * operations_per_token(run.own_model, run.data.vocab_size, length, run.data.channels)
        seconds = self._seconds(operations, "float32", tokens / PASS_TOKENS[self.gpu] * run.own_model.n_layers / 3)
        seconds += START_SECONDS[self.gpu] + 2 * weights / DISK_RATE
        gpus, held = int(self.gpu), ceil(3 * weights)
        return Need(gpus, self.threads, MEMORY_MB[self.gpu] + held, seconds, ceil(weights), gpu_memory_mb=gpus * held)

    def without_training(self, run: RunSpec) -> Need:
        """Weights are initialized and written, or imported and written.

        They are in memory twice: in the file's precision and in float32. `ssm train` initializes, and gets a GPU.
        """
        weights = _weights_mb(run)
        seconds = START_SECONDS[self.gpu] + 2 * weights / DISK_RATE
        gpus = int(self.gpu and run.checkpoint is None)
        memory = MEMORY_MB[bool(gpus)] + ceil(max(2 * weights, _starting_mb(run)))
        return Need(gpus, self.threads, memory, seconds, ceil(weights), gpu_memory_mb=gpus * ceil(weights))

    def training(self, run: RunSpec) -> Need:
        training, model, vocabulary = run.training, run.own_model, run.data.vocab_size
        channels, steps = run.data.channels, _steps(run)
        parameters = parameter_count(model, vocabulary, channels)
        each = operations_per_token(model, vocabulary, training.context, channels)
        operations = training.passes * each * training_tokens(run)
        batches = steps * (training.batch_size // training.micro_batch_size)
        seconds = self._seconds(operations, training.precision, batches * self._layers(run) * training.passes / 3)
        gpus = self._gpus(run, seconds)
        processes = max(1, gpus)  # one for each GPU
        peak, states = peak_memory(run, processes).total / MB, policy_bytes(run) / MB
        weights, checkpoint = _weights_mb(run), CHECKPOINT_BYTES * parameters / MB + states
        joining = states if processes > 1 else 0.0
        memory = (processes + 1) * checkpoint + joining if gpus else HELD_BACK * peak
        memory += processes * _starting_mb(run)
        always = len(training.snapshots) * weights + METRICS_BYTES * steps / MB
        kept, disk = ceil(always + 2 * weights), ceil(always + GOOD * weights + 2 * checkpoint)
        return Need(
            gpus=gpus,
            cpus=self.threads * processes,
            memory_mb=MEMORY_MB[self.gpu] * processes + ceil(memory),
            seconds=START_SECONDS[self.gpu] + seconds / processes,
            disk_mb=disk,
            gpu_memory_mb=ceil(peak) if gpus else 0,
            passing_mb=disk - kept,
            checkpoint_mb=checkpoint,
        )

    def measuring(self, task: MeasurementTask) -> Need:
        measurement, run = task.measurement, task.run
        seconds, memory, graph, disk = 0.0, 0.0, 0.0, float(TABLE_MB)
        for work in measurement.work(run):
            operations = work.tokens * operations_per_token(work.model, work.vocab_size, work.length, work.channels)
            operations += work.continued * operations_per_pass(work.model, work.length)
            passes = work.tokens / PASS_TOKENS[self.gpu] if work.passes is None else work.passes
            seconds += self._seconds(operations, "float32", passes * work.model.n_layers / 3)
        if isinstance(measurement, OfRun):
            assert run is not None
            memory = 2 * _weights_mb(run)
            disk += measurement.rows(run.own_model) * ROW_BYTES / MB
        if isinstance(measurement, OfWindows) and measurement.backward:
            assert run is not None
            windows = min(measurement.sequences, measurement.windows_per_pass("cuda" if self.gpu else "cpu"))
            graph = graph_bytes(run.own_model, windows, measurement.length) / MB
        gpus = int(self.gpu and seconds > 0)  # a table that is made from another table or from specs needs none
        seconds += START_SECONDS[self.gpu]
        host = MEMORY_MB[bool(gpus)] + ceil(memory + (0 if gpus else HELD_BACK * graph))
        return Need(gpus, self.threads, host, seconds, ceil(disk), gpu_memory_mb=gpus * ceil(memory / 2 + graph))

    def _layers(self, run: RunSpec) -> float:
        """Layers of a training batch that add time. A recurrence that is not linear runs step by step on a CPU."""
        by_step = sum(mixer.taxonomy.by_step for mixer in run.own_model.mixers())
        return run.own_model.n_layers + (0.0 if self.gpu else by_step * run.training.context * STEP_LAYERS)

    def _seconds(self, operations: float, precision: str, layers: float) -> float:
        """Seconds on one GPU (the longer of arithmetic and kernel launches) or on the CPU threads (the sum of both).

        Args:
            operations: the total floating-point operations.
            layers: the total number of layers that are passed forward and backward.
        """
        hardware = self.hardware
        if not self.gpu:
            return operations / (hardware.cpu_gflops * 1e9 * self.threads) + layers * hardware.cpu_layer_ms / 1e3
        peak = getattr(hardware.gpu_tflops, precision) * 1e12
        return max(operations / (peak * hardware.utilization), layers * hardware.layer_ms / 1e3)

    def _gpus(self, run: RunSpec, seconds: float) -> int:
        """1, 2, 4 ... GPUs: see the module's docstring. All have the same number of sequences of a batch."""
        if not self.gpu:
            return 0
        hardware, batch_size, gpus = self.hardware, run.training.batch_size, 1
        while 2 * gpus <= hardware.gpus_per_run and batch_size % (2 * gpus) == 0:
            fits = peak_memory(run, gpus).total <= hardware.gpu_memory_gb * 1e9
            if fits and seconds / gpus <= hardware.hours_per_run * 3600:
                break
            gpus *= 2
        return gpus
