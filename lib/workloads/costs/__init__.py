"""Costs: rent and price of tokens."""
