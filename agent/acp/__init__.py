"""The Agent Client Protocol: an agent in an editor."""
