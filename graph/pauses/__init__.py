"""Pauses, one class for each kind. They are all known once this package is imported."""

from donewhen.graph.pauses import budget, call, early, failure, plan, question

__all__ = ["budget", "call", "early", "failure", "plan", "question"]
