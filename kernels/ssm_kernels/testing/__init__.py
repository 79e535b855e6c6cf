"""Random inputs of every operation, and the comparison of results with the float64 oracle."""
