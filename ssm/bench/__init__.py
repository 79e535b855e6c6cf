"""Benchmarks: side by side with an independent implementation, correctness first, speed second."""
