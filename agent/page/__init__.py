"""A local page for one person on this machine: `donewhen chat`."""
