"""Training: spec + tokens -> weights, metrics and a resumable checkpoint."""
