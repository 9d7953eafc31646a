"""What goes wrong around a runtime (F5–F8, F10–F14): storages, models, providers, tools, plans, names, tampering.

Each fault has a module with a coroutine function `collect(folder) -> Measured`; `__main__` runs them.
"""
