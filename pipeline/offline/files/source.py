"""Where the bytes of a table come from: a file, a gzipped file, or standard input (``-``).

Tables are gone through more than once, so standard input is read whole and kept.
"""

import gzip
import hashlib
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pipeline.errors import InputError

JSON_ENDINGS = (".jsonl", ".ndjson", ".json")


class InputFile:
    """The bytes of one table, opened as often as needed; every fault is an `InputError`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = sys.stdin.buffer.read() if str(path) == "-" else None
        self.zipped = path.suffix.lower() == ".gz"

    def __str__(self) -> str:
        return "standard input" if self._kept is not None else str(self._path)

    @property
    def name(self) -> str:
        """A short name: that of the file without its endings."""
        if self._kept is not None:
            return "stdin"
        return Path(self._path.stem).stem if self.zipped else self._path.stem

    @property
    def is_json(self) -> bool:
        """Whether it has one JSON object per line: by its ending; standard input by its start."""
        if self._kept is not None:
            return self._kept.lstrip()[:1] == b"{"
        path = self._path.with_suffix("") if self.zipped else self._path
        return path.suffix.lower() in JSON_ENDINGS

    def is_file(self, path: Path) -> bool:
        """Whether `path` is this very file."""
        return self._kept is None and path.exists() and path.samefile(self._path)

    def digest(self) -> str:
        """Eight hex digits that name the content."""
        with self.open() as file:
            return hashlib.sha256(file.read()).hexdigest()[:8]

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The bytes from the beginning."""
        try:
            if self._kept is not None:
                yield io.BytesIO(self._kept)
            elif self.zipped:
                with gzip.open(self._path) as unzipped:
                    yield unzipped  # type: ignore[misc]  # a GzipFile is one but in name
            else:
                with self._path.open("rb") as file:
                    yield file
        except FileNotFoundError:
            raise InputError(f"there is no file {self}") from None
        except (gzip.BadGzipFile, zlib.error, EOFError):
            raise InputError(f"{self} is not gzip, or it breaks off") from None
        except OSError as error:
            raise InputError(f"cannot read {self}: {error.strerror}") from None
