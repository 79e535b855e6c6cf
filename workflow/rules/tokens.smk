# Text to tokens: one store per data set.


rule tokenize:
    output:
        f"{S}/tokens/{{data}}/manifest.json",
    log:
        f"{S}/logs/tokens/{{data}}.log",
    conda:
        "../envs/ssm.yaml"
    threads: 16  # or as many as there are
    resources:
        mem_mb=4000,
    params:
        spec=f"{S}/specs/data/{{data}}.json",
        folder=lambda wildcards, output: str(Path(output[0]).parent),
    message:
        "Tokenize {wildcards.data}"
    shell:
        "ssm tokenize {params.spec} --out {params.folder} --workers {threads} 2>&1 | tee {log}"
