"""A lock on a file. The kernel frees it when its holder dies, and keeps it while its holder is frozen."""

import fcntl
import hashlib
import os
from pathlib import Path


class FileLock:
    """An exclusive lock, held from `take` until `release`; excludes other holders in this process too."""

    def __init__(self, folder: Path, name: str) -> None:
        # A hash: a name may be any text, a path may not.
        self._path = folder / hashlib.sha256(name.encode()).hexdigest()[:32]
        self._fd = -1

    def take(self) -> bool:
        """Whether the lock was free and is ours now. Creates the folder; raises OSError when it cannot."""
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        while True:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                if isinstance(error, BlockingIOError):
                    return False
                raise
            if self._is_at_its_path(fd):
                self._fd = fd
                return True
            os.close(fd)  # the holder before us removed the file between our open and our lock

    def release(self) -> None:
        """Free the lock and remove its file."""
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def _is_at_its_path(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._path))
        except FileNotFoundError:
            return False
