# The report on all finished figures: a front page, and one page for each paper. The requested figures are finished first.
# The report also shows the reference results of this scale, and the sentences of config/synthesis.yaml. A change of these
# rewrites it.


rule report:
    """Write the pages: the overview, and the figures with their verdicts and sources."""
    input:
        lambda wildcards: results_of(reported()),
        reference=reference_files(),
        sentences=[path for path in ["config/synthesis.yaml"] if Path(path).is_file()],
    output:
        expand("{S}/report/{page}", S=S, page=PAGES),
    log:
        f"{S}/logs/report.log",
    localrule: True
    conda:
        "../envs/ssm.yaml"
    params:
        results=lambda wildcards, output: str(Path(output[0]).parents[1]),
        folder=lambda wildcards, output: str(Path(output[0]).parent),
        front=" ".join(WANTED),
        figures=lambda wildcards: " ".join(reported()),
        others=lambda wildcards: finished_besides(reported()),
        code=lambda wildcards: code_hash("ssm.cli.report"),
    message:
        "Write the report on {params.figures}"
    shell:
        logged(
            "ssm report {params.results:q} --out {params.folder:q} --front {params.front} --figures {params.figures}"
        )
