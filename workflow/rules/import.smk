# Weights that were trained elsewhere become a run. Weights on the hub need a network.


rule import_run:
    """Make a run from weights that were trained elsewhere; again when their local files change."""
    input:
        lambda wildcards: files_of_user(wildcards.run, IMPORTED),
    output:
        f"{S}/runs/{{run}}/{RUN_RECORD}",
        f"{S}/runs/{{run}}/{RUN_WEIGHTS}",
    log:
        f"{S}/logs/runs/{{run}}.log",
    wildcard_constraints:
        run="|".join(map(re.escape, IMPORTED)) or "(?!)",
    conda:
        "../envs/ssm.yaml"
    threads: cpus
    resources:
        **RESOURCES,
        gpu=gpus,
    params:
        spec=f"{S}/specs/runs/{{run}}.json",
        folder=lambda wildcards, output: str(Path(output[0]).parent),
        files=lambda wildcards: sizes_of(IMPORTED[wildcards.run]),
    message:
        "Import {wildcards.run}"
    shell:
        logged("ssm import {params.spec:q} --out {params.folder:q}")
