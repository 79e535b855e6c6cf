# A training run writes checkpoints into its own folder, and a killed job continues from the last one. On a cluster, a run
# may take several jobs: training stops ahead of the time limit or after a signal, and SLURM starts the same job again.


rule train:
    """Train one run: pre-training, or post-training of the final weights of another run."""
    input:
        tokens=lambda wildcards: f"{S}/tokens/{needs_of('run', wildcards.run).data}/manifest.json",
        parent=lambda wildcards: files_of_run(needs_of("run", wildcards.run).run),
    output:
        f"{S}/runs/{{run}}/{RUN_RECORD}",
        f"{S}/runs/{{run}}/metrics.parquet",
        f"{S}/runs/{{run}}/{RUN_WEIGHTS}",
    log:
        f"{S}/logs/runs/{{run}}.log",
    wildcard_constraints:
        # This does not list the runs. Snakemake reads the pattern for each file: 7,000 names took over a minute.
        run=f"(?!(?:{'|'.join(map(re.escape, IMPORTS))})/)[^/]+",
    conda:
        "../envs/ssm.yaml"
    threads: cpus
    resources:
        **RESOURCES,
        nodes=1,  # all GPUs of a job are on one node
        gpu=gpus,
        device=DEVICE,
    params:
        spec=f"{S}/specs/runs/{{run}}.json",
        folder=lambda wildcards, output: str(Path(output[0]).parent),
        tokens=lambda wildcards, input: str(Path(input.tokens).parent),
        parent=lambda wildcards, input: (
            f"--parent {shlex.quote(str(Path(input.parent[0]).parent))}"
            if input.parent
            else ""
        ),
        processes=lambda wildcards, resources: max(1, resources.gpu),  # one for each GPU
        threads=threads_each,
        time_limit=time_limit,
    message:
        "Train {wildcards.run}"
    shell:
        logged(
            "ssm train {params.spec:q} --tokens {params.tokens:q} {params.parent}"
            f" --windows {shlex.quote(f'{S}/specs/windows')}"
            " --out {params.folder:q} --device {resources.device} --threads {params.threads} --processes {params.processes}"
            " {params.time_limit}"
        )
