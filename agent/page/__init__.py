"""A room: a local page for one person on this machine, `donewhen chat`.

Without it, that command goes, with `serve_page` of `agent/cli/runs.py` and the extra `ui`.
"""
