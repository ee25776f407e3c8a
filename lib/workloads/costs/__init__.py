"""Costs: rent, price of tokens, and how many tries a success takes."""
