"""Questions to people: pauses, answers, consent, budgets."""
