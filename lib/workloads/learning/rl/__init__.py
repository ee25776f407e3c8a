"""Reinforcement learning: one step phase by phase, its price."""
