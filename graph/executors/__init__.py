"""Who works on steps: executors with a profile, and agents of their own that work by themselves."""
