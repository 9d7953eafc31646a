"""The operations of an HTTP API, described by an OpenAPI document, as tools.

To remove this room: this folder, `donewhen/openapi.py`, its tests and its page.
"""
