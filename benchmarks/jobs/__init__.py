"""Everyday jobs for a real model: what the runtime asks of it beside what a bare tool loop asks for the same job."""
