"""`python -m donewhen.agent.cli`, the same as `donewhen`."""

from donewhen.agent.cli import main

main()
