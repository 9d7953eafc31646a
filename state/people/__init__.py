"""People: what a pause shows, and what an answer means."""
