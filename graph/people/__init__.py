"""Asking people: pauses, answers, consent, budgets. Pure."""
