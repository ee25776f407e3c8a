"""Calculations of single pages: what one page or two work through, on the formulas of `workloads`, and no other formula needs."""
