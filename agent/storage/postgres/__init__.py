"""Runs kept in a PostgreSQL database, with the extra `postgres`."""

from donewhen.agent.storage.postgres.database import PostgresDatabase as PostgresDatabase
