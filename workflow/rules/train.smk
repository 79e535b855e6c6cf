# One training run. A killed job leaves its own checkpoints in the run's folder and goes on from there. On a cluster it may
# take many jobs: training ends itself ahead of the time limit, or when it is told to, and SLURM starts the same job again.


rule train:
    """One training run: pre-training, or post-training of another run's final weights."""
    input:
        tokens=lambda wildcards: f"{S}/tokens/{PLAN.inputs_of(wildcards.run).data}/manifest.json",
        parent=lambda wildcards: files_of_run(PLAN.inputs_of(wildcards.run).run),
    output:
        f"{S}/runs/{{run}}/run.json",
        f"{S}/runs/{{run}}/metrics.parquet",
        f"{S}/runs/{{run}}/model.safetensors",
    log:
        f"{S}/logs/runs/{{run}}.log",
    wildcard_constraints:
        run="|".join(map(re.escape, TRAINED)) or "(?!)",
    conda:
        "../envs/ssm.yaml"
    threads: cpus
    resources:
        nodes=1,  # all of a job's GPUs on one
        gpu=gpus,
        mem_mb=memory,
        runtime=minutes,
        disk_mb=disk,
        slurm_account=CLUSTER.account,
        slurm_partition=partition,
        qos=CLUSTER.qos,
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
        processes=lambda wildcards, resources: max(1, resources.gpu),  # a GPU each
        threads=threads_each,
        time_limit=time_limit,
    message:
        "Train {wildcards.run}"
    shell:
        logged(
            "ssm train {params.spec:q} --tokens {params.tokens:q} {params.parent}"
            " --out {params.folder:q} --device {resources.device} --threads {params.threads} --processes {params.processes}"
            " {params.time_limit}"
        )
