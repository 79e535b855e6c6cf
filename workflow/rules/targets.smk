# The targets besides the default one: all, a paper (lg, ls ...), and a figure (lg_fig5 ...).


rule all:
    """Every planned figure, and the report on them."""
    input:
        f"{S}/report/index.html",
    localrule: True
    message:
        "The report on every figure is complete"


for target in PLAN.targets():

    rule:
        name:
            target
        input:
            results_of([target]),
        localrule: True
        message:
            "{rule} is complete"

    # A docstring cannot be an expression, so it is set here.
    workflow.get_rule(target).docstring = PLAN.figures[target].figure.title


for paper in PAPERS:

    rule:
        name:
            paper
        input:
            f"{S}/report/{paper}.html",
        localrule: True
        message:
            "All figures of the paper '{rule}' are complete"

    workflow.get_rule(paper).docstring = (
        f"Every figure of this paper, and the report: {', '.join(PLAN.targets(paper))}"
    )
