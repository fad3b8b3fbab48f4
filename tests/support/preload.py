"""What the fork server imports and warms up once; every process of a test begins from here."""

from pipeline.runtime.environment import prepare

prepare()  # as the entry points do, before anything imports numpy

import pipeline.cli.evaluator  # noqa: E402
import pipeline.cli.worker  # noqa: E402
import pipeline.evaluator  # noqa: E402
import pipeline.worker  # noqa: E402, F401
from pipeline.runtime.warmup import warm_up  # noqa: E402

warm_up()
