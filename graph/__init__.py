"""Control flow: nodes, routes and their wiring. `build.py` is where to begin."""
