"""The lie test (F9): models that claim what is not so, and honest ones with odd habits, on real files and tools."""
