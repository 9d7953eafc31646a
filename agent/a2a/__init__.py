"""Agents elsewhere as executors, over the A2A protocol."""
