"""Models: mixers over the shared scans, one backbone, one state class, safe checkpoints."""
