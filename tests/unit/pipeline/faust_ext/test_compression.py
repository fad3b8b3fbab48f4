"""Whatever compression a producer chooses, the worker can read it."""

import pytest
from aiokafka import codec


@pytest.mark.parametrize("name", ["gzip", "lz4", "snappy", "zstd"])
def test_the_workers_consumer_reads_every_compression(name: str) -> None:
    """Without cramjam a stranger's lz4 batch ended the worker, again at every restart."""
    assert getattr(codec, f"has_{name}")()
    packed = getattr(codec, f"{name}_encode")(b"a record")
    assert bytes(getattr(codec, f"{name}_decode")(packed)) == b"a record"
