"""The jobs of tables for a cluster, as snakemake itself groups them and adds up their minutes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = """
import json, sys; from pathlib import Path; from snakemake.api import *; from snakemake.resources import *
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry
with SnakemakeApi() as api:
    asked = ResourceSettings(resources={'one_table': 1}, overwrite_resource_scopes=ResourceScopes(one_table='local'))
    settings = ConfigSettings(config=json.loads(sys.argv[2]))
    made = api.workflow(asked, config_settings=settings, snakefile=Path(sys.argv[1]))._workflow
    made.dag_settings = DAGSettings(targets={'all'}, forceall=True)
    made.group_settings = GroupSettings(group_components={'measure': 1000})
    made.execution_settings, made.storage_settings = ExecutionSettings(), StorageSettings()
    made.remote_execution_settings, made.deployment_settings = RemoteExecutionSettings(), DeploymentSettings()
    made._executor_plugin = ExecutorPluginRegistry().get_plugin('slurm')
    made._prepare_dag(forceall=True, ignore_incomplete=True, lock_warn_only=True)
    made._build_dag()
    made.async_run(made.dag.postprocess(update_needrun=False, check_initial=False))
    found = {}
    for group in {id(group): group for group in made.dag._group.values()}.values():
        for attempt in (1, 4):
            group.attempt, group._resources = attempt, None
            for job in group.jobs:
                job.reset_params_and_resources()
            tables = [job.wildcards.table for job in group.jobs]
            found.setdefault(group.groupid, []).append([tables, group.resources['runtime'], group.resources['gpu']])
    print(json.dumps(found))
"""


def test_no_job_of_tables_exceeds_the_time_limit_of_a_cluster(tmp_path: Path) -> None:
    results, cluster = str(tmp_path / "results"), {"max_hours": 2}
    figures = ["lg_fig5", "lg_fig13", "x_repairs"]  # the largest model's tables among them
    config = {"scale": "paper", "figures": figures, "device": "cuda", "results": results, "cluster": cluster}
    command = [sys.executable, "-c", CODE, str(ROOT / "workflow/Snakefile"), json.dumps(config)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert result.returncode == 0, result.stderr
    groups = json.loads(result.stdout.splitlines()[-1])
    tables = [table for (first, _, _), _ in groups.values() for table in first]
    assert len(tables) == len(set(tables)) > 100
    assert max(minutes for asked in groups.values() for _, minutes, _ in asked) <= 60 * 2
    assert {gpus for asked in groups.values() for _, _, gpus in asked} <= {0, 1}
    largest = [name for name in groups if name.startswith("measure_mamba2-1.3b_T2048_imported_s211-")]
    assert len(largest) == 3
