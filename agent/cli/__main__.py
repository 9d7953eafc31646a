"""`python -m agent.cli`, the same as `donewhen`."""

from agent.cli import main

main()
