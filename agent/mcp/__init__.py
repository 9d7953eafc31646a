"""The Model Context Protocol: use servers' tools, and offer runs as a server."""
