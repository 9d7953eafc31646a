"""The Model Context Protocol: servers whose tools a run may use, and a run as a server of its own."""
