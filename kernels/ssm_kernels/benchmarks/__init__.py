"""Benchmarks of the kernels and of training steps, beside independent implementations: results first, then speed."""
