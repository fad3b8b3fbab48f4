"""The echo of `benchmarks.echo` written for Quix Streams, a Faust-like library over librdkafka.

``PYTHON benchmarks/quix_echo.py PREFIX BOOTSTRAP``: a script of its own that imports nothing of
this project, because Quix Streams wants an older confluent-kafka than ours and so lives in a
virtual environment beside it (`make speed` makes it).
"""

import sys
from typing import Any


def main() -> None:
    from quixstreams import (  # type: ignore[import-not-found]  # noqa: PLC0415
        Application,
    )

    prefix, bootstrap = sys.argv[1:3]
    app: Any = Application(
        broker_address=bootstrap,
        consumer_group=f"{prefix}quix",
        auto_offset_reset="earliest",
        auto_create_topics=False,
        use_changelog_topics=False,
        loglevel="ERROR",
        producer_extra_config={"enable.idempotence": True, "linger.ms": 5},
    )
    raw = {"value_deserializer": "bytes", "key_deserializer": "bytes"}
    out = app.topic(f"{prefix}predictions", value_serializer="bytes", key_serializer="bytes")
    for name in ("features", "labels"):
        app.dataframe(app.topic(prefix + name, **raw)).to_topic(out)
    app.run()


if __name__ == "__main__":
    main()
