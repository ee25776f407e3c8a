"""Learning: the optimizer of training, scaling laws; reinforcement learning in `rl`."""
