"""docs/patients.csv, the file of the tutorial and the notebook: the demo's patients as a table.

``python -m tests.examples.patients > docs/patients.csv`` writes it; a test compares.
"""

import csv
import io
import sys
from datetime import UTC, datetime

from pipeline.sandbox.demo import make_story

RECORDS = 2_400
NOW_MS = 1_790_000_000_000


def table() -> str:
    """One line per patient, in the order of time: id, time, measurements, and the label."""
    cases = make_story("patients", RECORDS, 0, NOW_MS).cases
    names = sorted({name for case in cases for name in case.row.record})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "time", *names, "label"])
    for case in cases:
        time = datetime.fromtimestamp(case.at_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        cells = [case.row.record.get(name) for name in names]
        plain = [int(cell) if isinstance(cell, bool) else cell for cell in cells]
        writer.writerow([case.row.id, time, *plain, case.row.label])
    return text.getvalue()


if __name__ == "__main__":
    sys.stdout.write(table())
