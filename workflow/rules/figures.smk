# From tables to pictures and verdicts. The hash of the code is a parameter of these rules, so that a change of the code
# repeats them. Training and measuring do not have this parameter: their results stay until their specs change.


rule plot:
    """Draw a figure from its tables."""
    input:
        tables_of_figure,
    output:
        report(
            expand("{S}/figures/{{target}}.{format}", S=S, format=PICTURES[0]),
            caption="../report/figure.rst",
            category=lambda wildcards: PLAN.figures[wildcards.target].figure.paper,
            subcategory="{target}",
            labels={"figure": "{target}", "format": PICTURES[0]},
        ),
        report(
            expand("{S}/figures/{{target}}.{format}", S=S, format=PICTURES[1]),
            caption="../report/figure.rst",
            category=lambda wildcards: PLAN.figures[wildcards.target].figure.paper,
            subcategory="{target}",
            labels={"figure": "{target}", "format": PICTURES[1]},
        ),
        expand("{S}/figures/{{target}}.{format}", S=S, format=PICTURES[2:]),
    log:
        f"{S}/logs/figures/{{target}}.plot.log",
    localrule: True
    conda:
        "../envs/ssm.yaml"
    params:
        spec=f"{S}/specs/figures/{{target}}.json",
        content=lambda wildcards: PLAN.figures[wildcards.target].content_hash,
        caption=lambda wildcards: plain(PLAN.figures[wildcards.target].figure.caption),
        tables=f"{S}/tables",
        code=lambda wildcards: code_hash("ssm.cli.plot"),
        folder=lambda wildcards, output: str(Path(output[0]).parent),
    message:
        "Draw {wildcards.target}"
    shell:
        logged(
            "ssm plot {params.spec:q} --tables {params.tables:q} --out {params.folder:q}"
        )


rule judge:
    """Judge the claims of a figure from its tables."""
    input:
        tables_of_figure,
    output:
        f"{S}/verdicts/{{target}}.parquet",
    log:
        f"{S}/logs/figures/{{target}}.judge.log",
    localrule: True
    conda:
        "../envs/ssm.yaml"
    params:
        spec=f"{S}/specs/figures/{{target}}.json",
        content=lambda wildcards: PLAN.figures[wildcards.target].content_hash,
        tables=f"{S}/tables",
        # plots do not change verdicts
        code=lambda wildcards: code_hash("ssm.cli.judge", without="ssm.figures.plots"),
    message:
        "Judge the claims of {wildcards.target}"
    shell:
        logged("ssm judge {params.spec:q} --tables {params.tables:q} --out {output:q}")
