# A user's own checkpoint (config/models.yaml): diagnose_<name> and extend_<name>. No other target needs them.
#
# Snakemake deletes an output before its job runs, and the old page has to stay until there is a new one. So the output is
# an empty file beside the page, and a new folder takes the old one's place when it is whole. Work that was begun on the
# same files is gone on with after a kill; that of another version is deleted.


rule answer:
    """A checkpoint's diagnosis or extension."""
    input:
        lambda wildcards: CHECKPOINTS[wildcards.job].files or [],
    output:
        f"{S}/checkpoints/{{job}}/.made",
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
        last=lambda wildcards: CHECKPOINTS[wildcards.job].last_file,
        heed=heed,
        start_again=start_again,
    message:
        "ssm {params.words}"
    shell:
        "new={params.folder:q}.{resources.version}; for begun in {params.folder:q}.????????; do"
        ' test "$begun" = "$new" || rm -rf "$begun"; done; if ! test -e "$new/{params.last}"; then {params.heed}'
        ' ssm {params.words} --out "$new" --device {resources.device} --threads {threads} 2>&1 | tee -i {log:q}'
        " {params.start_again}; fi;"
        ' touch "$new/.made"; rm -rf {params.folder:q}; mv "$new" {params.folder:q};'
        " echo Moved to {params.folder:q} | tee -a {log:q}"


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
