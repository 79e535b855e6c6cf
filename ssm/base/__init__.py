"""The ground floor's tools: errors, atomic files, tables with provenance, named randomness, progress."""
