"""Arithmetic of LLM workloads."""
