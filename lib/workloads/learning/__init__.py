"""Learning: scaling laws; reinforcement learning in `rl`."""
