"""After its warm-up a worker compiles nothing: not at full blocks, after a snapshot, or when wide.

To compile a loop takes seconds, in which a serving worker would stand still.
"""

import json
import subprocess
import sys

PROGRAM = """
import json, sys
from pipeline.runtime.environment import prepare
prepare()
from pipeline.runtime.warmup import warm_up
warm_up()
from dtgol_core.config import Config
from dtgol_core.learner import Learner
from dtgol_core.state import decode, encode

def compiled():
    return {
        f"{module.__name__}.{name}": len(value.signatures)
        for module in list(sys.modules.values()) if module.__name__.startswith("dtgol_core")
        for name, value in vars(module).items() if hasattr(value, "signatures")
    }

def run(learner, first, last, columns):
    for number in range(first, last):
        record = {f"f{n}": (number * (n + 3) * 0.37) % 1.0 for n in range(number % 3, columns)}
        record |= {"text": "abc"[number % 3], "flag": number % 2 == 0, "whole": number % 7}
        learner.observe(str(number), record, why=2 if number % 9 == 0 else 0)
        if number >= 300:
            learner.learn(str(number - 300), number % 2)
        if number % 100 == 0:
            learner.observe("0", record)
            learner.peek(record, why=1)
            learner.learn(str(max(0, number - 301)), number % 2)

before = compiled()
for settings in ({}, {"preset": "light"}, {"preset": "paper"}):
    config = Config.read(settings)
    learner = Learner(config)
    run(learner, 0, 600, 6)
    kept = learner.snapshot()  # shares its full blocks with the learner
    run(learner, 600, 700, 6)
    run(Learner.restore(config, kept), 600, 700, 70)
    run(Learner.restore(config, decode(encode(kept))), 600, 640, 6)
    for number in range(9000):
        learner.delay.settled.remember(number << 50, 1, number, None)
    run(learner, 700, 720, 6)
after = compiled()
print(json.dumps({name: [before.get(name, 0), n] for name, n in after.items()}))
"""


def test_nothing_is_compiled_after_the_warm_up() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    signatures: dict[str, list[int]] = json.loads(run.stdout)
    assert len(signatures) > 30
    late = {name: counts for name, counts in signatures.items() if counts[0] != counts[1]}
    assert not late
