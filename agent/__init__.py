"""The world: models, tools, storage, people, CLI and server."""
