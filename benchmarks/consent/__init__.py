"""Count how often `approvals="shown"` asks in recorded work of a real model (X25)."""
