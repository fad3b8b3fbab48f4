"""The work of a worker without Kafka: a bare loop around the Learner, the Fold, or River.

``python -m benchmarks.bare KIND PAIRS [RATE]`` prints processor microseconds per pair of features
and label; with a rate in pairs per second it sleeps before each pair until it is due: a processor
that wakes up for a moment works with cold caches, whatever it does. The same records as
`benchmarks.throughput` sends, spread over as many learners or folds as a worker has there; ``fold``
reads bytes and headers and makes the bytes of the predictions.
"""

import sys
import time
from collections.abc import Callable

from pipeline.runtime.environment import prepare

prepare()

from benchmarks.step import stream  # noqa: E402
from dtgol_core.config import Config  # noqa: E402
from dtgol_core.learner import Learner  # noqa: E402
from pipeline.kafka.record import Record  # noqa: E402
from pipeline.learning.fold import Fold  # noqa: E402
from pipeline.learning.outputs import PartitionRef  # noqa: E402
from topics.codec import write_features, write_label  # noqa: E402
from topics.features import Features  # noqa: E402
from topics.headers import Header  # noqa: E402
from topics.journal import NO_OFFSET, CopyHeaders  # noqa: E402
from topics.labels import Label  # noqa: E402

COLUMNS = 16
PARTITIONS = 4
LATE = 200
"""Pairs of one partition between features and their label."""
WARM = 2 * LATE * PARTITIONS
Pair = Callable[[int], None]


def learner_loop(pairs: int) -> Pair:
    rows, labels = stream(COLUMNS, pairs)
    learners = [Learner(Config()) for _ in range(PARTITIONS)]

    def pair(i: int) -> None:
        learner, old = learners[i % PARTITIONS], i - LATE * PARTITIONS
        learner.observe(f"i{i}", rows[i])
        if old >= 0:
            learner.learn(f"i{old}", labels[old])

    return pair


def fold_loop(pairs: int) -> Pair:
    """Journal records are made beforehand, with a header of the producer as in the other runs."""
    rows, labels = stream(COLUMNS, pairs)
    records: list[list[Record]] = []
    writers = [
        [CopyHeaders(topic, f"id-{topic}", number) for topic in ("features", "labels")]
        for number in range(PARTITIONS)
    ]
    for i in range(pairs):
        number, at, old = i % PARTITIONS, i // PARTITIONS, max(i - LATE * PARTITIONS, i % 4)
        features = write_features(Features("bench", f"i{i}", rows[i], 1_000 + i))
        label = write_label(Label("bench", f"i{old}", labels[old], 1_000 + i))
        both = []
        for side, (key, value) in enumerate(((f"i{i}", features), (f"i{old}", label))):
            own: list[Header] = [("bench", b"features1000 0")]
            ours = writers[number][side].write(at, at - 1 if at else NO_OFFSET, 1_000 + i)
            headers = [*own, *ours]
            both.append(
                Record("journal", number, 2 * at + side, 1_000 + i, key.encode(), value, headers)
            )
        records.append(both)
    folds = [
        Fold(PartitionRef("id", "journal", number, "features", "labels"))
        for number in range(PARTITIONS)
    ]

    def pair(i: int) -> None:
        for record in records[i]:
            folds[i % PARTITIONS].apply(record)

    return pair


def river_loop(pairs: int) -> Pair:
    from river import compose, linear_model, preprocessing  # noqa: PLC0415

    rows, labels = stream(COLUMNS, pairs)
    models = [
        compose.Pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression())
        for _ in range(PARTITIONS)
    ]

    def pair(i: int) -> None:
        model, old = models[i % PARTITIONS], i - LATE * PARTITIONS
        model.predict_proba_one(rows[i])
        if old >= 0:
            model.learn_one(rows[old], bool(labels[old]))

    return pair


LOOPS = {"learner": learner_loop, "fold": fold_loop, "river": river_loop}


def main() -> None:
    kind, pairs = sys.argv[1], int(sys.argv[2]) + WARM
    gap_s = 1 / float(sys.argv[3]) if sys.argv[3:] else 0.0
    pair = LOOPS[kind](pairs)
    for i in range(WARM):
        pair(i)
    used, due = time.process_time(), time.monotonic()
    for i in range(WARM, pairs):
        pair(i)
        due += gap_s
        if gap_s:
            time.sleep(max(0.0, due - time.monotonic()))
    print((time.process_time() - used) / (pairs - WARM) * 1e6)


if __name__ == "__main__":
    main()
