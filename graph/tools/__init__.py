"""Calling tools: schemas, arguments, one call, its effect and its text."""
