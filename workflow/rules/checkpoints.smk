# The targets of users' own checkpoints (config/models.yaml): diagnose_<name> and extend_<name>.
#
# Snakemake deletes an output before its job runs, but the old page should stay until the new one is complete. So the output
# of the rule is an empty file next to the page, and `ssm` itself replaces the old folder by the complete new one. The name of
# the file has a hash of the command's arguments. So a page of other arguments does not count as finished.


rule answer:
    """The diagnosis or extension of a checkpoint."""
    input:
        inputs_of_answer,
    output:
        touch(f"{S}/checkpoints/{{job}}/.{{arguments}}{FINISHED}"),
    log:
        f"{S}/logs/checkpoints/{{job}}.{{arguments}}.log",
    conda:
        "../envs/ssm.yaml"
    threads: cpus
    resources:
        **RESOURCES,
        gpu=gpus,
        device=DEVICE,
        # A resource and not a parameter: a new version alone is no reason to run the job again.
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
            f"{S}/checkpoints/{job.id}/{job.finished}",
        localrule: True
        message:
            "{rule} is complete"

    workflow.get_rule(job.target).docstring = job.title
