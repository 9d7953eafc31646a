"""DoneWhen beside what a user would take instead: `make bench` runs all of them, interleaved, and writes the page."""
