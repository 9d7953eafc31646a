"""Plans that outlive a run: kept lists of steps, and templates of plans that worked."""
