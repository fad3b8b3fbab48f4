"""The journal in files: what Kafka's retention deletes, kept for as long as somebody wants it.

One folder per journal. A file holds consecutive records of one partition, gzipped JSON lines, keys,
values and headers in base64, so that a record comes back as it was to the byte. The name of a file
gives partition, first offset and end; a file is complete or it is not there.
"""

from __future__ import annotations

import gzip
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from pipeline.errors import InputError, RefusalError
from pipeline.kafka.clients import ClientSettings
from pipeline.kafka.reader import Progress, no_progress, read_range, watermarks
from pipeline.kafka.record import Record

FILE_RECORDS = 50_000
_NAME = re.compile(r"(\d+)-(\d+)-(\d+)\.jsonl\.gz")
_ABOUT = "journal.json"


class ArchiveFile(NamedTuple):
    """Records of one partition from `first` up to, and without, `end`."""

    first: int
    end: int
    path: Path


class JournalArchive:
    """The files of one journal, known by the id of its topic."""

    def __init__(self, folder: Path, journal_id: str) -> None:
        self._folder = folder
        self._journal_id = journal_id
        about = folder / _ABOUT
        if about.exists():
            found = orjson.loads(about.read_bytes())
            if found != {"journal_id": journal_id}:
                raise RefusalError(f"{folder} is the archive of another journal: choose a folder")

    def files(self, partition: int) -> list[ArchiveFile]:
        """The files of a partition, in order. Raises `RefusalError` where they do not join."""
        found = []
        for path in self._folder.glob("*.jsonl.gz") if self._folder.exists() else ():
            match = _NAME.fullmatch(path.name)
            if match is not None and int(match[1]) == partition:
                found.append(ArchiveFile(int(match[2]), int(match[3]), path))
        found.sort()
        for before, after in pairwise(found):
            if before.end != after.first:
                raise RefusalError(
                    f"the archive of partition {partition} has nothing between {before.end} and "
                    f"{after.first}: restore the files that are missing in {self._folder}"
                )
        return found

    def append(self, partition: int, records: Iterable[Record], start: int) -> int:
        """Write all records, which follow what is here, as from `start` on; returns how many.

        Each file is durable before the next is begun, so a command that is stopped goes on later.
        """
        self._prepare()
        left, first, written = iter(records), start, 0
        while batch := list(islice(left, FILE_RECORDS)):
            following = batch[-1].offset + 1
            self._write(partition, first, following, batch)
            first, written = following, written + len(batch)
        return written

    def _prepare(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            about = self._folder / _ABOUT
            if not about.exists():
                about.write_bytes(orjson.dumps({"journal_id": self._journal_id}))
        except OSError as error:
            raise InputError(f"cannot write {self._folder}: {error.strerror}") from None

    def _write(self, partition: int, first: int, end: int, batch: list[Record]) -> None:
        name = f"{partition:05d}-{first:020d}-{end:020d}.jsonl.gz"
        path = self._folder / name
        beside = path.with_suffix(".part")
        text = b"".join(orjson.dumps(_plain(record)) + b"\n" for record in batch)
        try:
            with os.fdopen(
                os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
            ) as file:
                file.write(gzip.compress(text, mtime=0))
                file.flush()
                os.fsync(file.fileno())
            beside.rename(path)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from None

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Record]:
        """The records from `start` up to `end`, as far as they are here."""
        for file in self.files(partition):
            if file.end <= start or file.first >= end:
                continue
            try:
                with gzip.open(file.path) as lines:
                    for line in lines:
                        record = _record(topic, partition, orjson.loads(line))
                        if start <= record.offset < end:
                            yield record
            except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
                raise InputError(f"{file.path} is damaged: {error}") from None


def archive_partition(
    archive: JournalArchive,
    client: ClientSettings,
    journal: str,
    partition: int,
    progress: Progress = no_progress,
) -> int:
    """Copy what is new of a partition; returns how many records.

    Raises `RefusalError` where records between the files and the journal are gone.
    """
    low, high = watermarks(client, journal, partition)
    files = archive.files(partition)
    start = files[-1].end if files else low
    if start < low:
        raise RefusalError(
            f"the archive of partition {partition} ends at {start} and {journal} begins at {low}: "
            f"records between are gone; archive into another folder from here on, and more often"
        )
    if start >= high:
        return 0
    with progress(high - start) as update:

        def records() -> Iterator[Record]:
            for record in read_range(client, journal, partition, start, high):
                yield record
                update(record.offset + 1 - start)

        return archive.append(partition, records(), start)


def _plain(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _pack(record.key),
        "value": _pack(record.value),
        "headers": [[name, _pack(value)] for name, value in record.headers],
    }


def _record(topic: str, partition: int, plain: dict[str, Any]) -> Record:
    return Record(
        topic,
        partition,
        plain["offset"],
        plain["timestamp_ms"],
        _unpack(plain["key"]),
        _unpack(plain["value"]),
        [(name, _unpack(value)) for name, value in plain["headers"]],
    )


def _pack(raw: bytes | None) -> str | None:
    return None if raw is None else b64encode(raw).decode()


def _unpack(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)
