"""Counts: FLOPs, bytes and tokens that follow from shapes alone."""
