"""The world: models, tools, storage, people, command line and server."""
