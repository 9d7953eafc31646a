"""Planning: triage and draft, what they look at, and what comes out of them."""
