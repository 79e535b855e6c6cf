"""The tools of the lowest layer: errors, atomic files, tables with provenance, named randomness, progress."""
