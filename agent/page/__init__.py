"""A page of its own for one person on this machine: `donewhen chat`."""
