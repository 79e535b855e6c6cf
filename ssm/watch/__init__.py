"""Show the runs of a results folder. Only files are read; nothing is written or locked."""
