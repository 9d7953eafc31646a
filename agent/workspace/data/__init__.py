"""Data files as tables: DuckDB reads them, in a process of its own that can do nothing else."""
