# Names to ask for beside the default one: all, a paper (lg, ls ...), a figure (lg_fig5 ...).


rule all:
    input:
        f"{S}/report/all.html",
    localrule: True


for target in PLAN.targets():

    rule:
        name:
            target
        input:
            expand("{S}/figures/{target}.{format}", S=S, target=target, format=FORMATS),
            f"{S}/verdicts/{target}.parquet",
        localrule: True


for paper in sorted({task.figure.paper for task in PLAN.figures.values()}):

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
