# What the rules ask of the plan: ids to paths and arguments.


def files_of_run(run):
    """What another job reads of a finished run; nothing for None."""
    return (
        [f"{S}/runs/{run}/{name}" for name in ("run.json", "model.safetensors")]
        if run
        else []
    )


def inputs_of_table(wildcards):
    """The files that a measurement reads, by kind."""
    needs = PLAN.inputs_of(wildcards.table)
    files = {"run": files_of_run(needs.run)}
    if needs.data:
        files["tokens"] = f"{S}/tokens/{needs.data}/manifest.json"
    if needs.table:
        files["table"] = f"{S}/tables/{needs.table}.parquet"
    return files


def flags_of_table(table):
    """The same as arguments of `ssm evaluate`."""
    needs = PLAN.inputs_of(table)
    flags = {
        "--run": needs.run and f"{S}/runs/{needs.run}",
        "--tokens": needs.data and f"{S}/tokens/{needs.data}",
        "--table": needs.table and f"{S}/tables/{needs.table}.parquet",
    }
    return " ".join(
        f"{flag} {shlex.quote(value)}" for flag, value in flags.items() if value
    )


def corpus_version(data):
    """What a corpus depends on besides its files: the running Python, whose library the standard library's corpus is."""
    return platform.python_version() if data.sources.library else ""


def tables_of_figure(wildcards):
    """The tables that a figure is drawn and judged from."""
    return expand(
        "{S}/tables/{table}.parquet", S=S, table=PLAN.tables_of(wildcards.target)
    )


PAPERS = sorted({task.figure.paper for task in PLAN.figures.values()})


def results_of(targets):
    """The images and verdicts of figures."""
    images = expand(
        "{S}/figures/{target}.{format}", S=S, target=targets, format=FORMATS
    )
    return images + expand("{S}/verdicts/{target}.parquet", S=S, target=targets)


@cache
def reported():
    """The figures that have to be finished before this call writes the report: what it asks for, or the front page's."""
    asked = set(workflow.dag_settings.targets or ())
    if "all" in asked:
        return PLAN.targets()
    papers = asked & set(PAPERS)
    front = () if papers and not asked & {"headline"} else WANTED
    return tuple(
        target
        for target, task in PLAN.figures.items()
        if task.figure.paper in papers or target in asked or target in front
    )


def finished_besides(targets):
    """What else the report shows, and since when: where that changes, it is written anew."""
    made = {}
    for target in PLAN.targets():
        files = [Path(name) for name in results_of([target])]
        if target not in targets and all(path.is_file() for path in files):
            made[target] = max(path.stat().st_mtime_ns for path in files)
    return made


def reference_files():
    """The reference results that the report shows: none beside a dry run, or where there is no folder of this scale."""
    found = () if LIBRARY.workflow.dry_run else Path("reports", LIBRARY.scale).glob("*")
    return sorted(str(path) for path in found if path.suffix in (".json", ".png"))


def hold_results():
    """Refuse results that a snakemake in another folder works on: Snakemake's own locks know this folder alone.

    Called by onstart, which a snakemake that makes one job of another's does not run, on whichever host.
    """
    holders = Path(S, ".workflows")
    holders.mkdir(parents=True, exist_ok=True)
    # Two clones may lie at the same path, on two hosts that share the results' disk.
    here = f"{Path.cwd()} on {socket.gethostname()}"
    mine = open(holders / hashlib.sha256(here.encode()).hexdigest()[:8], "a+")
    lock(mine, alone=False, wait=True)
    mine.truncate(0)
    print(here, file=mine, flush=True)
    for path in {*holders.iterdir()} - {Path(mine.name)}:
        with open(path, "a+") as other:
            if not lock(other, alone=True):
                other.seek(0)
                raise WorkflowError(
                    f"A snakemake in {other.read().strip()} works on {S}: wait until it ends, or stop it"
                )
    atexit.register(mine.close)  # held until snakemake ends


def name_reports():
    """Say where the reports are that this call made or found finished."""
    dag = getattr(workflow, "_dag", None)
    for job in () if dag is None or workflow.dryrun else dag.jobs:
        if dag.finished(job) or not dag.needrun(job):
            if job.rule.name == "report":
                print(f"Report: {job.output[0]}", file=sys.stderr)
            elif job.rule.name == "answer":
                print(f"Report: {job.params.folder}/index.html", file=sys.stderr)


def explain_locks():
    """Snakemake says that the folder is locked, and that one may unlock it; say whether a living one works here."""
    planned = getattr(workflow, "_dag", None) and not workflow.dryrun
    if not (
        planned
        and INSTANCE_LOCK
        and workflow.is_main_process
        and workflow.persistence.locked
    ):
        return
    try:
        require_only_instance(INSTANCE_LOCK)
        problem = "The last snakemake here was killed: `make figures` unlocks the folder and goes on"
    except UserError as error:
        problem = error
    print(problem, file=sys.stderr)


def explain_unknown_targets():
    """Snakemake takes a mistyped name for a file that no rule makes; say which name is near."""
    for target in workflow.dag_settings.targets if workflow.dag_settings else ():
        known = workflow.is_rule(target) or Path(target).exists()
        if re.fullmatch(r"[\w.-]+", target) and not known:
            checkpoints = [job.target for job in CHECKPOINTS.values()]
            names = ["headline", "all", *PAPERS, *PLAN.targets(), *checkpoints]
            print(
                f"Unknown target '{target}'; {nearest(target, names)}", file=sys.stderr
            )


# What jobs ask for, by the run, table, data set or answer that they make: resources and threads of the rules. The
# arithmetic is in ssm/plan; a batch system takes it from there, a single machine minds the GPUs and threads alone.


def on_cluster():
    """Whether jobs run elsewhere, or this is one of them. Not known before jobs are planned: no constant."""
    return workflow.remote_exec or workflow.non_local_exec


@cache
def asks_for_gpus():
    """Whether training and measuring do. Where a cluster does not say it, nothing is submitted."""
    try:
        here = bool(shutil.which("nvidia-smi"))
        return takes_gpus(LIBRARY.workflow, on_cluster(), here)
    except UserError as problem:
        raise WorkflowError(str(problem)) from None


@cache
def expected():
    """Run, table, data set or answer on a checkpoint -> what its job takes."""
    gpu = asks_for_gpus()
    answers = {id: job.need(LIBRARY.workflow, gpu) for id, job in CHECKPOINTS.items()}
    return needs(PLAN, LIBRARY.workflow, gpu) | answers


def cpus(wildcards):
    return expected()[wildcards[0]].cpus


def gpus(wildcards):
    return expected()[wildcards[0]].gpus


def threads_each(wildcards, resources, threads):
    """CPU threads of each of a job's processes, where it may be given fewer threads, or GPUs, than it asked for."""
    return max(1, min(LIBRARY.workflow.threads, threads // max(1, resources.gpu)))


def memory(wildcards, attempt):
    return expected()[wildcards[0]].memory_to_ask_for(attempt)


@cache
def table_jobs():
    """Table -> its place in a cluster's job."""
    return pack_jobs(PLAN, expected(), CLUSTER)


def minutes(wildcards, attempt):
    packed = table_jobs().get(wildcards[0])
    need = expected()[wildcards[0]]
    return need.minutes_to_ask_for(CLUSTER, attempt, packed.share if packed else 1.0)


def time_limit(wildcards, resources):
    """Training leaves ahead of a cluster's time limit; here there is none."""
    seconds = expected()[wildcards[0]].seconds_to_train(resources.runtime)
    return f"--stop-after {seconds}" if on_cluster() else ""


def disk(wildcards):
    return expected()[wildcards[0]].disk_mb


def partition(wildcards):
    """None: the cluster's default. Tables of one run may share a job, so they name one partition."""
    job = wildcards[0]
    shares = asks_for_gpus() and job in PLAN.measurements and PLAN.inputs_of(job).run
    on_gpu = expected()[job].gpus or shares
    return (on_gpu and CLUSTER.gpu_partition) or CLUSTER.partition


def tables_together(wildcards):
    """On a cluster the tables of one run are one job, or a few: they are short, and wait for the same weights."""
    packed = table_jobs().get(wildcards.table) if on_cluster() else None
    return packed and packed.job


# What the profile calls them all: group-components: measure=...
workflow.parent_groupids.update(dict.fromkeys(job_names(PLAN), "measure"))


# What a job and its processes print goes to the terminal and into the job's log. No signal that is meant for the job ends
# tee, and neither a full disk nor a closed terminal stops the job. tee is no part of a pipe: the job's code is that of `ssm`.
# A pipe's shell would stay, die of a signal that `ssm` has to get, and wait for processes that a job leaves running. So tee
# may write the last line a moment after the job ended.
LOGGED = "&> >(trap '' HUP INT QUIT PIPE TERM USR1; exec tee {log:q} >&2)"


def logged(command):
    return f"{command} {LOGGED}"


# Rules are plain commands. Here a command takes its shell's place, so that whoever ends a job meets `ssm`, which leaves as
# it should. On a compute node the shell stays, to see how it left: told to, by a scheduler's signal or its time limit, it
# says so by its exit code, or in its first moments, before it has handlers, ends by the signal. SLURM then starts the same
# job again, and no retry is used up; a job of several tables starts again as a whole. Not where SLURM itself ends the job
# (cancelled, say): it is no longer running then. SLURM counts how often, but sets no limit: who sends signals has to stop.
shell.prefix("exec")
if workflow.remote_exec:
    left = "|".join(
        map(str, [REQUEUE, TIME_OVER, *(128 + number for number in SIGNALS)])
    )
    runs = 'test "$(squeue -h -j $SLURM_JOB_ID -o %T)" = RUNNING'
    again = f"{runs} && scontrol requeue $SLURM_JOB_ID"
    shell.prefix("trap '' TERM USR1; (trap - TERM USR1; exec")
    shell.suffix(f"); code=$?; case $code in {left}) {again};; esac; exit $code")
    # Snakemake is what SLURM starts, and with proctrack/cgroup, the usual way, all that SLURM sends a signal to. It would
    # die of SIGUSR1, and wait for its job on SIGTERM without telling it.
    pass_on_signals(
        lambda: [child.pid for child in psutil.Process().children(recursive=True)]
    )
