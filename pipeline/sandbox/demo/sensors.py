"""A fleet of machines, one stream each: will this one need repair within the week?

Every machine has its own levels, so every stream has its own learner. A fifth of the readings is
lost. Midway the fleet is moved to a hotter hall and gets stiffer bearings: all levels shift, and
from then on it is a *low* vibration together with a high current that announces the repair.
"""

import numpy as np

from dtgol_core.types import Value
from pipeline.sandbox.demo.stories import CHANGE, Plan, Story, generate_cases

MACHINES = 6
PLAN = Plan(days=30.0, label_days=(3.0, 4.5), positives=0.35, missing=0.2)
MODES = ("idle", "cutting", "milling")


def sensors(records: int, seed: int, end_ms: int) -> Story:
    """The story with so many records, the machines in turn, the last one before ``end_ms``."""
    generator = np.random.default_rng([seed, 2])
    levels: list[list[float]] = generator.normal(size=(MACHINES, 4)).tolist()
    turn = iter(range(records))

    def measure(worn: bool, moment: float, chance: np.random.Generator) -> dict[str, Value]:
        return _measure(worn, moment >= CHANGE, levels[next(turn) % MACHINES], chance)

    def stream_of(number: int) -> tuple[str, str]:
        machine = f"machine-{number % MACHINES + 1}"
        return machine, f"{machine}/{number // MACHINES:05}"

    cases = generate_cases(PLAN, records, end_ms, stream_of, measure, generator)
    title = f"{MACHINES} machines, one stream each: will it need repair within the week?"
    return Story("sensors", title, cases, round(CHANGE * records), PLAN.days)


def _measure(
    worn: bool, after: bool, level: list[float], generator: np.random.Generator
) -> dict[str, Value]:
    wear = float(generator.normal(1.2 if worn else 0.0, 0.5))
    noise: list[float] = generator.normal(size=5).tolist()
    vibration = -0.7 * wear if after else 0.9 * wear
    return {
        "temperature": round(48 + 4 * level[0] + (9 if after else 0) + 5 * wear + 3 * noise[0], 1),
        "vibration": round(float(np.exp(0.3 * level[1] + vibration + 0.3 * noise[1])), 3),
        "current": round(11 + level[2] + (2 if after else 0) + 1.8 * wear + 0.9 * noise[2], 2),
        "rpm": round(1450 + 30 * level[3] - 25 * wear + 20 * noise[3]),
        "load": int(np.clip(round(2 + 0.8 * wear + noise[4]), 0, 5)),
        "mode": MODES[int(generator.choice(3, p=(0.2, 0.5, 0.3)))],
        "coolant_ok": bool(generator.random() > (0.3 if worn else 0.08)),
    }
