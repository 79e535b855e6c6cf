# Weights that were trained elsewhere: a run without training. Needs a network where they lie on the hub and not here.


rule import_run:
    """Weights from elsewhere, as a run that others go on from; anew when their files here change."""
    input:
        lambda wildcards: IMPORTED[wildcards.run] or [],
    output:
        f"{S}/runs/{{run}}/run.json",
        f"{S}/runs/{{run}}/model.safetensors",
    log:
        f"{S}/logs/runs/{{run}}.log",
    wildcard_constraints:
        run="|".join(map(re.escape, IMPORTED)) or "(?!)",
    conda:
        "../envs/ssm.yaml"
    threads: cpus
    resources:
        gpu=gpus,
        mem_mb=memory,
        runtime=minutes,
        disk_mb=disk,
        slurm_account=CLUSTER.account,
        slurm_partition=partition,
        qos=CLUSTER.qos,
    params:
        spec=f"{S}/specs/runs/{{run}}.json",
        folder=lambda wildcards, output: str(Path(output[0]).parent),
    message:
        "Import {wildcards.run}"
    shell:
        logged("ssm import {params.spec:q} --out {params.folder:q}")
