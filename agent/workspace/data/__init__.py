"""Data files as tables: DuckDB reads them in a separate, restricted process."""
