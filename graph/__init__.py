"""Control flow: nodes, routes and their wiring."""
