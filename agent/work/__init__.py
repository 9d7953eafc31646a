"""Work in the background: the rows of threads, submitted runs, schedules, and workers."""
