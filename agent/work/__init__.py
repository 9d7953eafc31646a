"""Background work: the rows of threads, submitted runs, schedules, and workers."""
