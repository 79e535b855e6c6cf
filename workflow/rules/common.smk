# Functions for the rules: from the ids of the plan to paths and arguments.


def needs_of(kind, job):
    """The run, token store and table that a job needs; `kind` is run or table."""
    planned = PLAN.runs if kind == "run" else PLAN.measurements
    if job not in planned:
        hint = nearest(job, planned, "`ssm plan --write DIR` writes the spec of each")
        # Snakemake prints the traceback of every Exception in an input function. This is none.
        raise SystemExit(f"{LIBRARY.scale} has no {kind} '{job}'; {hint}")
    return PLAN.inputs[job]


def files_of_run(run):
    """The files of a finished run that other jobs read; empty for None."""
    return (
        [f"{S}/runs/{run}/{name}" for name in (RUN_RECORD, RUN_WEIGHTS)] if run else []
    )


def inputs_of_table(wildcards):
    """The input files of a measurement, by kind."""
    needs = needs_of("table", wildcards.table)
    files = {"run": files_of_run(needs.run)}
    if needs.data:
        files["tokens"] = f"{S}/tokens/{needs.data}/manifest.json"
    if needs.table:
        files["table"] = f"{S}/tables/{needs.table}.parquet"
    return files


def inputs_of_answer(wildcards):
    """The user's files that an answer on a checkpoint is made from."""
    job = CHECKPOINTS[wildcards.job]
    if job.problem:
        raise SystemExit(f"{job.target}: {job.problem}")
    return job.files or []


def flags_of_table(table):
    """The inputs of a measurement as arguments of `ssm evaluate`."""
    needs = needs_of("table", table)
    flags = {
        "--run": needs.run and f"{S}/runs/{needs.run}",
        "--tokens": needs.data and f"{S}/tokens/{needs.data}",
        "--table": needs.table and f"{S}/tables/{needs.table}.parquet",
    }
    return " ".join(
        f"{flag} {shlex.quote(value)}" for flag, value in flags.items() if value
    )


def corpus_version(data):
    """The Python version if a corpus is Python's standard library, and the sizes of the user's files."""
    python = platform.python_version() if PLAN.data[data].sources.library else ""
    return python + sizes_of(SOURCES[data])


def tables_of_figure(wildcards):
    """The tables of a figure."""
    return expand(
        "{S}/tables/{table}.parquet", S=S, table=PLAN.tables_of(wildcards.target)
    )


PAPERS = sorted({task.figure.paper for task in PLAN.figures.values()})


def results_of(targets):
    """The pictures and verdicts of figures."""
    images = expand(
        "{S}/figures/{target}.{format}", S=S, target=targets, format=PICTURES
    )
    return images + expand("{S}/verdicts/{target}.parquet", S=S, target=targets)


@cache
def reported():
    """The figures that must be finished before the report: those of the requested targets, or of the front page."""
    if not PLAN.targets():
        # Otherwise `ssm report` would complain about an option that the user did not give.
        scale, lacking = LIBRARY.scale, first_of(LIBRARY.left_out, 5) or "none exists"
        raise SystemExit(f"no figure has seeds for the scale '{scale}': {lacking}")
    requested = set(workflow.dag_settings.targets or ())
    if "all" in requested:
        return PLAN.targets()
    papers = requested & set(PAPERS)
    front = () if papers and not requested & {"headline"} else WANTED
    return tuple(
        target
        for target, task in PLAN.figures.items()
        if task.figure.paper in papers or target in requested or target in front
    )


def finished_besides(targets):
    """Other finished figures in the report, with the time of their newest file. A change of these rewrites the report."""
    made = {}
    for target in PLAN.targets():
        files = [Path(name) for name in results_of([target])]
        if target not in targets and all(path.is_file() for path in files):
            made[target] = max(path.stat().st_mtime_ns for path in files)
    return made


def reference_files():
    """The reference results of this scale, for the report; none for a dry run."""
    found = () if LIBRARY.workflow.dry_run else Path("reports", LIBRARY.scale).glob("*")
    return sorted(str(path) for path in found if path.suffix in (".json", ".png"))


def jobs_of_targets():
    """The ids of all data sets, runs and tables that the targets need, finished or not."""
    return {job.wildcards[0] for job in workflow._dag.jobs if job.wildcards}


def name_reports():
    """Print the paths of the reports that are finished."""
    dag = getattr(workflow, "_dag", None)
    kept = {job.target: job for id, job in CHECKPOINTS.items() if id not in ANSWERABLE}
    for job in () if dag is None or workflow.dryrun else dag.jobs:
        if dag.finished(job) or not dag.needrun(job):
            if job.rule.name == "report":
                print(f"Report: {job.output[0]}", file=sys.stderr)
            elif job.rule.name == "answer":
                print(f"Report: {job.params.folder}/index.html", file=sys.stderr)
            elif answered := kept.get(job.rule.name):
                print(
                    f"Report: {S}/checkpoints/{answered.id}/index.html (files of its text or checkpoint are missing, so "
                    "changes are not noticed)",
                    file=sys.stderr,
                )


def explain_locks():
    """Add to Snakemake's message about a locked folder whether another snakemake is running here."""
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
        problem = "The last snakemake here was killed: `make figures` unlocks the folder and continues"
    except UserError as error:
        problem = error
    print(problem, file=sys.stderr)


def name_outdated_figures():
    """Print the requested figures that should be made again, but that Snakemake takes for finished.

    Their verdicts are on other arms, seeds or claims than those of the plan. Snakemake records the parameters of a
    finished file only in the folder in which it made it. Results can be moved, and another clone can go on with them.
    """
    dag = getattr(workflow, "_dag", None)
    if dag is None or not workflow.is_main_process:
        return
    finished = {
        job.wildcards.target
        for job in dag.jobs
        if job.rule.name == "judge" and not dag.needrun(job)
    }
    for target in sorted(finished):
        try:
            judged = read_provenance(f"{S}/verdicts/{target}.parquet").get("figure")
        except TableError:  # there are no verdicts
            continue
        if judged != PLAN.figures[target].content():
            print(
                f"{target} was made with other arms, seeds or claims than those of its figure file. To make it again, "
                f"add: --forcerun '{S}/verdicts/{target}.parquet' '{S}/figures/{target}.svg'",
                file=sys.stderr,
            )


def explain_unknown_targets():
    """Print the nearest target for a mistyped name. Snakemake only says that no rule makes such a file."""
    for target in workflow.dag_settings.targets if workflow.dag_settings else ():
        known = workflow.is_rule(target) or Path(target).exists()
        if Path(target).parent in (Path(f"{S}/figures"), Path(f"{S}/verdicts")):
            target = Path(target).stem
        if why := LIBRARY.why_left_out(target):
            print(why, file=sys.stderr)
        elif not known and (why := LIBRARY.why_no_checkpoint(target)):
            print(why, file=sys.stderr)
        elif re.fullmatch(r"[\w.-]+", target) and not (
            known or target in PLAN.targets()
        ):
            checkpoints = [job.target for job in CHECKPOINTS.values()]
            names = ["headline", "all", *PAPERS, *PLAN.targets(), *checkpoints]
            print(
                f"Unknown target '{target}'; {nearest(target, names, '`ssm plan` lists all figures')}",
                file=sys.stderr,
            )


# The resources and threads of jobs, by the id of the run, table, data set or answer. ssm/plan computes them. A single
# machine uses only the numbers of GPUs and threads; a cluster uses all.


def on_cluster():
    """Whether jobs run on a cluster, or this is such a job. This is known only while Snakemake plans jobs."""
    return workflow.remote_exec or workflow.non_local_exec


@cache
def uses_gpus():
    """Whether training and measuring use GPUs. An error if the settings of a cluster do not decide it."""
    try:
        here = bool(shutil.which("nvidia-smi"))
        return takes_gpus(LIBRARY.workflow, on_cluster(), here)
    except UserError as problem:
        raise WorkflowError(str(problem)) from None


@cache
def expected():
    """The needs of the job of each run, table, data set and answer, by id."""
    gpu = uses_gpus()
    answers = {id: job.need(LIBRARY.workflow, gpu) for id, job in CHECKPOINTS.items()}
    return needs(PLAN, LIBRARY.workflow, gpu, SOURCES) | answers


def require_memory():
    """Refuse to submit runs that do not fit on their GPUs. They would fail after hours of waiting in a queue."""
    dag = workflow._dag
    trained = [
        job.wildcards.run
        for job in dag.jobs
        if job.rule.name == "train" and dag.needrun(job)
    ]
    for line in too_large(trained, "runs", LIBRARY.workflow.hardware, expected()):
        raise WorkflowError(line)


def cpus(wildcards):
    return expected()[wildcards[0]].cpus


def gpus(wildcards):
    return expected()[wildcards[0]].gpus


def threads_each(wildcards, resources, threads):
    """CPU threads of each process. The job may get fewer threads or GPUs than it requested."""
    return max(1, min(LIBRARY.workflow.threads, threads // max(1, resources.gpu)))


def memory(wildcards, attempt):
    return expected()[wildcards[0]].memory_to_request(attempt)


@cache
def table_jobs():
    """The job of a cluster that makes each table."""
    return pack_jobs(PLAN, expected(), CLUSTER)


def minutes(wildcards, attempt):
    packed = table_jobs().get(wildcards[0])
    need = expected()[wildcards[0]]
    return need.minutes_to_request(CLUSTER, attempt, packed.share if packed else 1.0)


def time_limit(wildcards, resources):
    """The option with which training stops ahead of a cluster's time limit."""
    seconds = expected()[wildcards[0]].seconds_to_train(resources.runtime)
    return f"--stop-after {seconds}" if on_cluster() else ""


def disk(wildcards):
    return expected()[wildcards[0]].disk_mb


def partition(wildcards):
    """The partition; None: the cluster's default. Tables of one run may share a job, so they get the same partition."""
    job = wildcards[0]
    shares = uses_gpus() and job in PLAN.measurements and PLAN.inputs[job].run
    on_gpu = expected()[job].gpus or shares
    return (on_gpu and CLUSTER.gpu_partition) or CLUSTER.partition


# The resources of every job that a cluster may run.
RESOURCES = dict(
    mem_mb=memory,
    runtime=minutes,
    disk_mb=disk,
    slurm_account=CLUSTER.account,
    slurm_partition=partition,
    qos=CLUSTER.qos,
)


def tables_together(wildcards):
    """The job group of a table on a cluster. Tables of one run are short and need the same weights, so they share jobs."""
    packed = table_jobs().get(wildcards.table) if on_cluster() else None
    return packed and packed.job


# All these groups have the name `measure` in the profile (group-components).
workflow.parent_groupids.update(dict.fromkeys(job_names(PLAN), "measure"))


# The output of a job goes to the terminal and into the job's log. tee ignores the signals for the job. A full disk or a
# closed terminal does not stop the job. tee is not part of a pipe, because the shell of a pipe would not be replaced by
# `ssm`: it would receive the signals for `ssm`, and would wait for processes that a job leaves running. As a result, tee
# may write the last line a moment after the end of the job.
LOGGED = "&> >(trap '' HUP INT QUIT PIPE TERM USR1; exec tee {log:q} >&2)"


def logged(command):
    return f"{command} {LOGGED}"


# On one machine, `ssm` replaces its shell (exec), so that signals reach `ssm` itself.
# On a compute node, the shell stays and reads the exit code. `ssm` has special exit codes for a scheduler's signal and for
# its time limit; before it has signal handlers, the signal itself ends it. In these cases, SLURM starts the same
# job again, without using up a retry. A job of several tables starts again as a whole. A job that SLURM itself ends,
# such as a cancelled one, is no longer RUNNING and is not started again. SLURM sets no limit to the number of restarts.
shell.prefix("exec")
if workflow.remote_exec:
    left = "|".join(
        map(str, [REQUEUE, TIME_OVER, *(128 + number for number in SIGNALS)])
    )
    runs = 'test "$(squeue -h -j $SLURM_JOB_ID -o %T)" = RUNNING'
    again = f"{runs} && scontrol requeue $SLURM_JOB_ID"
    shell.prefix("trap '' TERM USR1; (trap - TERM USR1; exec")
    shell.suffix(f"); code=$?; case $code in {left}) {again};; esac; exit $code")
    # SLURM starts Snakemake and, with the usual proctrack/cgroup, signals only Snakemake. Without this call, SIGUSR1 would
    # end Snakemake, and after SIGTERM it would wait for the job without a signal to it.
    pass_on_signals(
        lambda: [child.pid for child in psutil.Process().children(recursive=True)]
    )
