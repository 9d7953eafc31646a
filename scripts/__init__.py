"""What makes a release: the site, the recorded run, and the trial of what is built. Called by make targets."""
