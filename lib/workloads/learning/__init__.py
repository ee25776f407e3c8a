"""Learning: batches and optimizer of training, scaling laws, the life of a model; reinforcement learning in `rl`."""
