"""Reinforcement learning: one step phase by phase, the round of its roles, its price."""
