"""People: what pauses show, and what answers mean."""
