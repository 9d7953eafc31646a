"""Executors: profiles with a model and tools, and agents that work on their own."""
