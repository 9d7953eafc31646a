"""Plans that outlive a run: lists of steps that people and agents keep, and plans that worked, to start from again."""
