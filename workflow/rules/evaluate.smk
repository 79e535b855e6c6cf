# A measurement reads a run, another table, or nothing, and makes one table.


rule evaluate:
    """Make one measurement, as one table."""
    input:
        unpack(inputs_of_table),
    output:
        f"{S}/tables/{{table}}.parquet",
    log:
        f"{S}/logs/tables/{{table}}.log",
    group:
        tables_together
    conda:
        "../envs/ssm.yaml"
    threads: cpus
    resources:
        **RESOURCES,
        one_table=1,
        gpu=gpus,
        device=DEVICE,
    params:
        spec=f"{S}/specs/measurements/{{table}}.json",
        inputs=lambda wildcards: flags_of_table(wildcards.table),
    message:
        "Measure {wildcards.table}"
    shell:
        logged(
            "ssm evaluate {params.spec:q} {params.inputs} --out {output:q}"
            " --device {resources.device} --threads {threads}"
        )
