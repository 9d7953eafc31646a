"""A room: an agent in an editor, over the Agent Client Protocol.

Without it, `donewhen acp`, `serve_acp` of `donewhen.servers` and the extra `acp` go.
"""
