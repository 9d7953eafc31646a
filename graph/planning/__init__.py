"""Planning: triage and draft, their reads, and their outcomes."""
