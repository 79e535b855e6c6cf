# Names to ask for beside the default one: all, a paper (lg, ls ...), a figure (lg_fig5 ...).

PAPERS = sorted({task.figure.paper for task in PLAN.figures.values()})


rule all:
    """The report on every planned figure."""
    input:
        f"{S}/report/all.html",
    localrule: True
    message:
        "The report on every figure is complete"


for target in PLAN.targets():

    rule:
        name:
            target
        input:
            expand("{S}/figures/{target}.{format}", S=S, target=target, format=FORMATS),
            f"{S}/verdicts/{target}.parquet",
        localrule: True
        message:
            "{rule} is complete"

    # A docstring could not say it: it is no expression.
    workflow.get_rule(target).docstring = PLAN.figures[target].figure.title


for paper in PAPERS:

    rule:
        name:
            paper
        input:
            expand(
                "{S}/figures/{target}.{format}",
                S=S,
                target=PLAN.targets(paper),
                format=FORMATS,
            ),
            expand("{S}/verdicts/{target}.parquet", S=S, target=PLAN.targets(paper)),
        localrule: True
        message:
            "All figures of the paper '{rule}' are complete"

    workflow.get_rule(paper).docstring = (
        f"Every figure of this paper: {', '.join(PLAN.targets(paper))}"
    )
