# The report: index.html shows the headline figures, all.html every planned one.


rule report:
    """One page with the figures, their verdicts and where they come from."""
    input:
        lambda wildcards: expand(
            "{S}/figures/{target}.{format}",
            S=S,
            target=REPORTS[wildcards.report],
            format=FORMATS,
        ),
        lambda wildcards: expand(
            "{S}/verdicts/{target}.parquet", S=S, target=REPORTS[wildcards.report]
        ),
    output:
        f"{S}/report/{{report}}.html",
    log:
        f"{S}/logs/report/{{report}}.log",
    localrule: True
    conda:
        "../envs/ssm.yaml"
    params:
        folder=lambda wildcards, output: str(Path(output[0]).parents[1]),
        targets=lambda wildcards: " ".join(REPORTS[wildcards.report]),
    message:
        "Write the report on {params.targets}"
    shell:
        "ssm report {params.folder:q} --out {output:q} --figures {params.targets} --log {log:q}"
