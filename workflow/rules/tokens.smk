# Text to tokens: one store for each data set.


rule tokenize:
    """Split and tokenize a corpus, once for all runs that read it, and again when its files change."""
    input:
        lambda wildcards: files_of_user(wildcards.data, SOURCES),
    output:
        f"{S}/tokens/{{data}}/manifest.json",
    log:
        f"{S}/logs/tokens/{{data}}.log",
    conda:
        "../envs/ssm.yaml"
    threads: cpus
    resources:
        **RESOURCES,
    params:
        spec=f"{S}/specs/data/{{data}}.json",
        folder=lambda wildcards, output: str(Path(output[0]).parent),
        corpus=lambda wildcards: corpus_version(wildcards.data),
    message:
        "Tokenize {wildcards.data}"
    shell:
        logged(
            "ssm tokenize {params.spec:q} --out {params.folder:q} --workers {threads}"
        )
