"""A2A: remote agents as executors (`remote.py`, of the core), and a room, an agent as an endpoint (`server.py`).

Without the room, `a2a_app` and `PushNotifications` of `donewhen.servers` go.
"""
