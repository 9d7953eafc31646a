"""Many threads and many workers on one database; see __main__."""
