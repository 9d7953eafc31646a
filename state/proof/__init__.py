"""Proof: observations, quotes, evidence, checks, outcome and receipt."""
