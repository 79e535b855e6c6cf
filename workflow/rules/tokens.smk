# Text to tokens: one store per data set.


rule tokenize:
    """A corpus, split and tokenized: once for all runs that read it, and anew when its files change."""
    input:
        lambda wildcards: SOURCES[wildcards.data] or [],
    output:
        f"{S}/tokens/{{data}}/manifest.json",
    log:
        f"{S}/logs/tokens/{{data}}.log",
    conda:
        "../envs/ssm.yaml"
    threads: cpus  # or as many as there are
    resources:
        mem_mb=memory,
        runtime=minutes,
        disk_mb=disk,
        slurm_account=CLUSTER.account,
        slurm_partition=partition,
        qos=CLUSTER.qos,
    params:
        spec=f"{S}/specs/data/{{data}}.json",
        folder=lambda wildcards, output: str(Path(output[0]).parent),
        corpus=lambda wildcards: corpus_version(PLAN.data[wildcards.data]),
    message:
        "Tokenize {wildcards.data}"
    shell:
        logged(
            "ssm tokenize {params.spec:q} --out {params.folder:q} --workers {threads}"
        )
