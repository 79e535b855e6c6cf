"""What only a GPU can show, by one command: `python -m ssm_kernels.benchmarks.on_gpu`.

    stages      the table of stages: limits of time, needed packages
    __main__    the command: it names what is missing, runs stages and prints a summary; it computes nothing on the GPU
    workers     starts worker processes, hands out tasks, ends a worker that hangs
    worker      a worker process: does one task after another
    report      result files, one for each stage
    machine     device and versions, missing packages and how to bring them
    task        what the modules of the stages share

A stage is a list of tasks, each done in a worker process. A kernel that crashes or hangs ends its worker. A new worker
continues with the next task. Stages with kernels and speeds need torch and triton alone.

The other modules are the stages. `--rehearse` runs all of them without a GPU, with `stand_ins`.
"""
