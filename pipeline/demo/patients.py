"""Patients after a hip or knee operation: will the recovery be complicated?

A day's record has vital signs, a pain score, ward and procedure, and some yes or no; a third of
it was not measured. Whether the recovery was complicated is known a week later. Midway the
hospital changes: sicker patients with faster pulses come in, a new analyser reports C-reactive
protein on a higher scale, everybody is made to walk on the first day (the covariates); nerve
blocks turn the pain score round and revisions become routine (the concept).
"""

import numpy as np

from dtgol_core.types import Value
from pipeline.demo.stories import Plan, Story, unfold

STREAM = "rehabilitation"
PLAN = Plan(days=60.0, label_days=(6.0, 9.0), positives=0.4, missing=1 / 3)
WARDS = ("A2", "A3", "B1")
PROCEDURES = ("hip", "knee", "revision")


def patients(records: int, seed: int, end_ms: int) -> Story:
    """The story with so many records, the last one shortly before ``end_ms``."""
    generator = np.random.default_rng([seed, 1])
    cases = unfold(
        PLAN, records, end_ms, lambda number: (STREAM, f"patient-{number:05}"), _measure, generator
    )
    title = "after hip and knee operations: will the recovery be complicated?"
    return Story("patients", title, cases, records // 2, PLAN.days)


def _measure(complicated: bool, after: bool, generator: np.random.Generator) -> dict[str, Value]:
    # One hidden burden ties the measurements together; that is what the copula learns.
    burden = float(generator.normal(1.0 if complicated else 0.0, 0.55))
    noise: list[float] = generator.normal(size=8).tolist()
    procedure = (0.3, 0.3, 0.4) if complicated != after else (0.45, 0.45, 0.1)
    return {
        "pulse": round((88 if after else 76) + 14 * burden + 7 * noise[0]),
        "temperature": round((36.9 if after else 36.7) + 0.6 * burden + 0.25 * noise[1], 1),
        "systolic": round((118 if after else 128) - 7 * burden + 12 * noise[2]),
        "saturation": min(100, round((96 if after else 97) - 2 * burden + 1.2 * noise[3])),
        "crp_mg_l": round(float(np.exp((3.6 if after else 2.6) + burden + 0.45 * noise[4])), 1),
        "steps": max(0, round((1900 if after else 900) - 450 * burden + 250 * noise[5])),
        "pain": int(np.clip(round((2 - burden if after else 3 + 3 * burden) + noise[6]), 0, 10)),
        "stairs": int(np.clip(round((3 if after else 2) - 1.4 * burden + 0.6 * noise[7]), 0, 3)),
        "ward": WARDS[int(generator.choice(3, p=(0.2, 0.2, 0.6) if after else (0.4, 0.4, 0.2)))],
        "procedure": PROCEDURES[int(generator.choice(3, p=procedure))],
        "diabetes": bool(generator.random() < (0.35 if complicated else 0.15)),
        "lives_alone": bool(generator.random() < 0.4),
        "antibiotics": bool(generator.random() < (0.55 if complicated else 0.4 if after else 0.15)),
    }
