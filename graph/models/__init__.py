"""Asking models: prompts in, decisions, speech and costs out."""
