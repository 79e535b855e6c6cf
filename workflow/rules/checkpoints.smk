# A user's own checkpoint (config/models.yaml): diagnose_<name> and extend_<name>. No other target needs them.
#
# Snakemake deletes an output before its job runs, and the old page has to stay until there is a new one. So the output is
# an empty file beside the page, and `ssm` itself puts a new folder in the old one's place when it is whole.


rule answer:
    """A checkpoint's diagnosis or extension."""
    input:
        lambda wildcards: CHECKPOINTS[wildcards.job].files or [],
    output:
        touch(f"{S}/checkpoints/{{job}}/.made"),
    log:
        f"{S}/logs/checkpoints/{{job}}.log",
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
        device=DEVICE,
        # No parameter: where it alone is another one, nothing is made again.
        version=lambda wildcards: CHECKPOINTS[wildcards.job].version,
    params:
        words=lambda wildcards: shlex.join(CHECKPOINTS[wildcards.job].words),
        folder=f"{S}/checkpoints/{{job}}",
    message:
        "ssm {params.words}"
    shell:
        logged(
            "ssm {params.words} --out {params.folder:q} --replace {resources.version}"
            " --device {resources.device} --threads {threads}"
        )


for job in CHECKPOINTS.values():

    rule:
        name:
            job.target
        input:
            f"{S}/checkpoints/{job.id}/.made",
        localrule: True
        message:
            "{rule} is complete"

    workflow.get_rule(job.target).docstring = job.title
