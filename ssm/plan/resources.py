"""What every job of a plan is expected to take: GPUs, CPUs, memory, time, disk. Arithmetic on specs, nothing measured.

Operations: a training token takes three forward passes (one forward, two backward), four with activation checkpointing;
a forward pass has the operations of ssm/plan/parameters.py. On a GPU seconds are these over peak times utilization
(config.yaml: hardware), and no less than what Python and kernel launches take: `layer_ms` a layer and training batch.
Training runs at its precision's peak, measurements at float32's. A CPU does one after the other: the operations at
`cpu_gflops`, which is what a thread reaches, and `cpu_layer_ms` a layer and batch.

Memory: training's peak (ssm/plan/memory.py), on a CPU with what an allocator holds back unused. A run takes 2, 4, 8 ...
GPUs while its peak does not fit into one or it takes too long, and is allowed more (config.yaml: gpus_per_run): then
every process trains its share of a batch.

A checkpoint holds 12 bytes a parameter, weights and AdamW's moments, and what the initial-state policy has to remember:
with State Passing and TBTT the states of the whole batch, which can be more. With GPUs the host keeps a copy for every
process, which reads it, and one on its way to the disk; of several processes the first has the others' states once more
when it joins them.

Disk: a run keeps its last checkpoint, its weights and its snapshots. While it trains, a checkpoint is written beside
the one that it replaces, and two sets of weights are kept for the case that it diverges. A token of a store takes 2
bytes, or 4 from 65,536 tokens on.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor

from ssm.base.errors import ConfigError
from ssm.plan.memory import graph_bytes, peak_memory, policy_bytes
from ssm.plan.parameters import operations_per_token, parameter_count
from ssm.plan.plan import Plan
from ssm.specs.config import Cluster, Hardware, WorkflowConfig
from ssm.specs.data import Data
from ssm.specs.measurement import MeasurementTask
from ssm.specs.measurements.base import OfRun, OfWindows
from ssm.specs.repairs import RepairSpec
from ssm.specs.training import RunSpec

MB = 1e6
# With a GPU: Python, torch, the GPU, the model's weights; without: a job forked from a process that has all but these.
START_SECONDS = {True: 30.0, False: 0.7}
LEAST_SECONDS = 600.0  # that a job asks for: a shared disk may be slow, and short jobs are let in anyway
AROUND_SECONDS = 180.0  # of a time limit that are no training, checkpoints not counted: a job's start, its last step
DISK_RATE = 200.0  # MB/s that one job reads and writes at: assumed, of a shared disk with others on it
CHECKPOINTS_A_JOB = 3  # read at its start, written at its end, and perhaps right before that because it was due
ATTEMPTS = 4  # of a job: one, and the slurm profile's retries
MEMORY_MB = {True: 6000, False: 2000}  # of any job: with a GPU (its libraries), without
HELD_BACK = 1.5  # times the peak that is in use: what the C library keeps of freed memory, at most
CHECKPOINT_BYTES = 12  # a parameter
GOOD = 2  # sets of weights that a run keeps while it trains: what it goes back to where it diverges
PASS_TOKENS = {True: 131_072, False: 2048}  # a measurement's forward pass, with and without a GPU
TOKENIZE_CPUS = 16  # or as many as there are
TOKENIZE_RATE = 200_000  # tokens a second and thread
ROW_BYTES = 16  # of a table that has many, packed
METRICS_BYTES = 64  # a training step's row
TABLE_MB = 1  # any other table


@dataclass(frozen=True)
class Need:
    """What a job is expected to take.

    Attributes:
        memory_mb: of the host.
        disk_mb: at the job's peak.
        gpu_memory_mb: of each GPU; its libraries take 1 GB more. Of measurements: weights, a backward pass.
        passing_mb: of disk_mb, what is gone when the job has ended.
        checkpoint_mb: of training.
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
        """Of the disk, what stays."""
        return self.disk_mb - self.passing_mb

    @property
    def gpu_hours(self) -> float:
        return self.gpus * self.seconds / 3600

    @property
    def disk_seconds(self) -> float:
        """That a job may be busy with checkpoints, those not counted that are written while there is time."""
        return CHECKPOINTS_A_JOB * self.checkpoint_mb / DISK_RATE

    def minutes_to_ask_for(self, cluster: Cluster, attempt: int = 1, share: float = 1.0) -> int:
        """Minutes of a batch system: the expected time with its margin, times the attempt, and at most the limit.

        Args:
            share: of the limit, where several are one job and their minutes are added up (ssm/plan/job_packing.py).
        """
        seconds = max(LEAST_SECONDS, cluster.time_margin * (self.seconds + self.disk_seconds))
        most = floor(60 * cluster.max_hours * share + 1e-6)  # shares of integers make integers but for rounding
        return max(1, min(attempt * ceil(seconds / 60), most))

    def seconds_to_train(self, minutes: int) -> int:
        """Of a job's time limit, what is left for steps, with time to write the last checkpoint: half at least."""
        return round(max(60 * minutes - AROUND_SECONDS - self.disk_seconds, 30 * minutes))

    def memory_to_ask_for(self, attempt: int = 1) -> int:
        """MB: a second attempt gets twice as much, and so on."""
        return self.memory_mb * attempt


def takes_gpus(workflow: WorkflowConfig, cluster: bool = False, here: bool = False) -> bool:
    """Whether training and measuring take a GPU each.

    Args:
        cluster: jobs run on one, of which this machine's own GPU says nothing.
        here: whether this machine has a GPU.

    Raises:
        ConfigError: a cluster of which nobody has said whether it has GPUs: a job that asks for none is given none.
    """
    if workflow.device != "auto":
        return workflow.device == "cuda"
    if workflow.cluster.gpu_partition is not None:
        return True
    if cluster:
        raise ConfigError(
            "config.yaml: device: 'auto' cannot tell whether a cluster has GPUs; give device=cuda or device=cpu, or "
            "name cluster.gpu_partition"
        )
    return here


def needs(plan: Plan, workflow: WorkflowConfig, gpu: bool) -> dict[str, Need]:
    """Run, table or data id -> what its job takes.

    Args:
        gpu: whether training and measuring take a GPU each; without, a job takes the configured CPU threads.
    """
    reckoner = _Estimator(workflow.hardware, workflow.threads, gpu)
    found = {name: reckoner.run(run) for name, run in plan.runs.items()}
    found |= {name: reckoner.measuring(task) for name, task in plan.measurements.items()}
    most: dict[str, int] = {}
    for run in plan.runs.values():
        name = run.data.id
        most[name] = max(most.get(name, 0), training_tokens(run))
    return found | {name: _tokenizing(data, most.get(name, 0), gpu) for name, data in plan.data.items()}


def training_tokens(run: RunSpec) -> int:
    """Tokens that a run trains on, its parents not counted."""
    return _steps(run) * run.training.batch_tokens


def _steps(run: RunSpec) -> int:
    parameters = parameter_count(run.own_model, run.data.vocab_size, run.data.channels)
    return run.training.budget.optimizer_steps(run.training.batch_tokens, parameters)


def _tokenizing(data: Data, read: int, gpu: bool) -> Need:
    """A store's size is estimated from the longest run that reads it: only its files know the true size."""
    width, tokens = 2 if data.vocab_size <= 2**16 else 4, data.stored_tokens(read)
    seconds = START_SECONDS[gpu] + tokens / (TOKENIZE_RATE * TOKENIZE_CPUS)
    return Need(0, TOKENIZE_CPUS, 2 * MEMORY_MB[False], seconds, ceil(width * tokens / MB))


def _weights_mb(run: RunSpec) -> float:
    return 4 * parameter_count(run.own_model, run.data.vocab_size, run.data.channels) / MB


def _starting_mb(run: RunSpec) -> float:
    """What one process holds of weights when a run that takes layers starts: its own, and its parent's twice.

    So once more where it diverges, while all of training is still there (ssm/training/finalize.py).
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
        """Every trial reads its windows, with a copy of the weights."""
        weights, length = _weights_mb(run), repair.length(run.training.context)
        tokens = repair.tokens_read(run.own_model, run.training.context)
        operations = tokens * operations_per_token(run.own_model, run.data.vocab_size, length, run.data.channels)
        seconds = self._seconds(operations, "float32", tokens / PASS_TOKENS[self.gpu] * run.own_model.n_layers / 3)
        seconds += START_SECONDS[self.gpu] + 2 * weights / DISK_RATE
        gpus, held = int(self.gpu), ceil(3 * weights)
        return Need(gpus, self.threads, MEMORY_MB[self.gpu] + held, seconds, ceil(weights), gpu_memory_mb=gpus * held)

    def without_training(self, run: RunSpec) -> Need:
        """Weights that are written as they were initialized; or imported: read, perhaps over a network, and written.

        They are held twice, as they lie on disk and in float32. `ssm train`, which initializes, is given its GPU.
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
        seconds = self._seconds(operations, training.precision, batches * model.n_layers * training.passes / 3)
        gpus = self._gpus(run, seconds)
        processes = max(1, gpus)  # a GPU each
        peak, states = peak_memory(run, processes).total / MB, policy_bytes(run) / MB
        weights, checkpoint = _weights_mb(run), CHECKPOINT_BYTES * parameters / MB + states
        joining = states if processes > 1 else 0.0
        memory = (processes + 1) * checkpoint + joining if gpus else HELD_BACK * peak
        memory += processes * _starting_mb(run)
        always = len(training.snapshots) * weights + checkpoint + METRICS_BYTES * steps / MB
        kept, disk = ceil(always + weights), ceil(always + GOOD * weights + checkpoint)
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
            passes = work.tokens / PASS_TOKENS[self.gpu] if work.passes is None else work.passes
            seconds += self._seconds(operations, "float32", passes * work.model.n_layers / 3)
        if isinstance(measurement, OfRun):
            assert run is not None
            memory = 2 * 4 * parameter_count(run.own_model, run.data.vocab_size, run.data.channels) / MB
            disk += measurement.rows(run.own_model) * ROW_BYTES / MB
        if isinstance(measurement, OfWindows) and measurement.backward:
            assert run is not None
            windows = min(measurement.sequences, measurement.together("cuda" if self.gpu else "cpu"))
            graph = graph_bytes(run.own_model, windows, measurement.length) / MB
        gpus = int(self.gpu and seconds > 0)  # a table made of another table, or of specs, needs none
        seconds += START_SECONDS[self.gpu]
        host = MEMORY_MB[bool(gpus)] + ceil(memory + (0 if gpus else HELD_BACK * graph))
        return Need(gpus, self.threads, host, seconds, ceil(disk), gpu_memory_mb=gpus * ceil(memory / 2 + graph))

    def _seconds(self, operations: float, precision: str, layers: float) -> float:
        """Seconds of one GPU, arithmetic or launches, whichever takes longer; or of the threads, both together.

        Args:
            operations: floating-point operations altogether.
            layers: layers gone through forward and backward altogether.
        """
        hardware = self.hardware
        if not self.gpu:
            return operations / (hardware.cpu_gflops * 1e9 * self.threads) + layers * hardware.cpu_layer_ms / 1e3
        peak = getattr(hardware.gpu_tflops, precision) * 1e12
        return max(operations / (peak * hardware.utilization), layers * hardware.layer_ms / 1e3)

    def _gpus(self, run: RunSpec, seconds: float) -> int:
        """1, 2, 4 ... GPUs: see the top. Each has as many sequences of a batch as the others."""
        if not self.gpu:
            return 0
        hardware, batch_size, gpus = self.hardware, run.training.batch_size, 1
        while 2 * gpus <= hardware.gpus_per_run and batch_size % (2 * gpus) == 0:
            fits = peak_memory(run, gpus).total <= hardware.gpu_memory_gb * 1e9
            if fits and seconds / gpus <= hardware.hours_per_run * 3600:
                break
            gpus *= 2
        return gpus
