"""Calls of a decision: made once, kept as observations, read on; and what their observations prove."""
