"""What a preset takes: many streams are for `light`."""

import numpy as np

from dtgol_core.config import Config
from dtgol_core.learner import Learner

COLUMNS, RECORDS, WAITING = 16, 1_000, 100
LIGHT_BYTES_MAX = 300_000


def learner(preset: str) -> Learner:
    """After so many records, the newest of which wait for their labels."""
    made, chance = Learner(Config.read({"preset": preset})), np.random.default_rng(0)
    for number in range(RECORDS):
        row = chance.normal(size=COLUMNS).tolist()
        made.observe(str(number), {f"f{n}": value for n, value in enumerate(row)})
        if number >= WAITING:
            made.learn(str(number - WAITING), number % 2)
    return made


def test_a_light_learner_is_small_in_memory_and_on_disk() -> None:
    """Besides the ids that it remembers, whose number the traffic decides."""
    light = learner("light")
    assert WAITING <= light.pending <= WAITING + 1
    ids = light.delay.settled.state_bytes
    assert light.state_bytes - ids <= LIGHT_BYTES_MAX
    assert sum(array.nbytes for array in light.snapshot().arrays.values()) <= LIGHT_BYTES_MAX
    # a fifth until the default learner's own state became smaller
    assert light.state_bytes - ids < (learner("default").state_bytes - ids) / 3
