"""Programs and searches that run in processes of their own, so that they can be ended."""
