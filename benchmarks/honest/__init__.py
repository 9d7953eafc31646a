"""Everyday honest work: nothing of it may be refused, asked about without need, or marked."""
