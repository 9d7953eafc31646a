"""Work that nobody waits for at a terminal: what is known of threads, submitted runs, schedules, and workers."""
