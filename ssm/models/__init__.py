"""Models: mixers, one backbone, one state class, checkpoints of ssm and of other libraries."""
