"""Read decisions from the texts of models."""
