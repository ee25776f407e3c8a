"""Serving: loads and their arrivals, queues, batches, caches, and the latencies that users see."""
