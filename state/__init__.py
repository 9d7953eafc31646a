"""Data: plain JSON and pure functions. Nothing here does I/O or knows the control flow."""
