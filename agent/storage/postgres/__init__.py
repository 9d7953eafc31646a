"""Storage of runs in a PostgreSQL database; needs the extra `postgres`."""

from donewhen.agent.storage.postgres.database import PostgresDatabase as PostgresDatabase
