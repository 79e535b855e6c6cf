"""Benchmarks of scans and training steps next to independent implementations. Results are compared first."""
