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
    return platform.python_version() if isinstance(data.corpus, StdlibCorpus) else ""


def tables_of_figure(wildcards):
    """The tables that a figure is drawn and judged from."""
    return expand(
        "{S}/tables/{table}.parquet", S=S, table=PLAN.tables_of(wildcards.target)
    )


def name_reports():
    """Say where the reports are that this call made or found finished."""
    dag = getattr(workflow, "_dag", None)
    for job in () if dag is None or workflow.dryrun else dag.jobs:
        if job.rule.name == "report" and (dag.finished(job) or not dag.needrun(job)):
            print(f"Report: {job.output[0]}", file=sys.stderr)


def explain_unknown_targets():
    """Snakemake takes a mistyped name for a file that no rule makes; say which name is near."""
    for target in workflow.dag_settings.targets if workflow.dag_settings else ():
        if re.fullmatch(r"\w+", target) and not workflow.is_rule(target):
            names = ["headline", "all", *PAPERS, *PLAN.targets()]
            print(
                f"Unknown target '{target}'; {nearest(target, names)}", file=sys.stderr
            )
