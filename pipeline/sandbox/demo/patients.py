"""Patients after a hip or knee operation: will the recovery be complicated?

A day's record has vital signs, a pain score, the ward, and some yes or no; a fifth of it was not
measured. Whether the recovery was complicated is known six to nine days, some 300 records, later.

How they are generated. Every patient has a place in a plane: how inflamed, and how immobile; the
measurements are noisy readings of the two. Uncomplicated and complicated recoveries are two round
clouds in that plane, always equally far apart. What moves is the direction from one to the other:

- Four degrees a day, all the time. At first the complicated recoveries are the inflamed ones. As a
  steroid comes into use they are the immobile ones, then those *less* inflamed than the others, and
  in the end, with early exercise, those who move most. Labels are about the clouds of last week.
- By 45 degrees at once in the middle, when the hospital changes its anaesthesia over night. This
  begins the blind zone: for a week all labels are about the old clouds.

Records without labels show both: the clouds stay apart, and after the jump each is nearer to its
own old place than to the other's. That is what the expert `tracker` is made for, and its weight
grows as labels show that it was right; experts that learn from labels alone are a week behind.

The movement was chosen so that this can be seen: about ten were tried on seeds 0 and 1 with a
prototype of the learner. Where the clouds stood still for the first two fifths and then turned by
150 degrees within nine days, the prototype had no reason yet to trust the tracker: it was no better
than naive in the blind zone (0.73 both) and worse after it (0.38 to 0.53).

Where the tracker fails, and so would this story: clouds that meet lose their names; a jump of more
than 90 degrees exchanges them, and the tracker is wrong with confidence until the labels come; a
concept that changes while the records stay where they are shows nothing. The other story, sensors,
changes like that.
"""

import math

import numpy as np

from dtgol_core.types import Value
from pipeline.sandbox.demo.stories import CHANGE, Plan, Story, generate_cases

STREAM = "rehabilitation"
PLAN = Plan(days=60.0, label_days=(6.0, 9.0), positives=0.4, missing=0.2)
WARDS = ("A2", "A3", "B1")
TURN, JUMP = math.radians(240.0), math.radians(45.0)
"""By how much the direction turns over the whole story, and at once at its change."""
DISTANCE = 4.5
"""Between the clouds, in deviations: with all measurements at hand 1 to 2 % cannot be told."""


def patients(records: int, seed: int, end_ms: int) -> Story:
    """The story with so many records, the last one shortly before ``end_ms``."""
    generator = np.random.default_rng([seed, 1])
    cases = generate_cases(
        PLAN, records, end_ms, lambda number: (STREAM, f"patient-{number:05}"), _measure, generator
    )
    title = "after hip and knee operations: will the recovery be complicated?"
    return Story("patients", title, cases, round(CHANGE * records), PLAN.days)


def direction(moment: float) -> float:
    """From the uncomplicated to the complicated, as an angle; 0 is more inflamed, π/2 immobile."""
    return TURN * moment + (JUMP if moment >= CHANGE else 0.0)


def _measure(complicated: bool, moment: float, generator: np.random.Generator) -> dict[str, Value]:
    away = DISTANCE / 2 if complicated else -DISTANCE / 2
    inflamed = away * math.cos(direction(moment)) + float(generator.normal())
    immobile = away * math.sin(direction(moment)) + float(generator.normal())
    noise: list[float] = generator.normal(size=8).tolist()
    # Older patients come in as the weeks go by, mostly to one ward.
    wards = (0.4 - 0.2 * moment, 0.4 - 0.2 * moment, 0.2 + 0.4 * moment)
    return {
        "pulse": round(82 + 8 * inflamed + 3 * noise[0]),
        "temperature": round(37.0 + 0.4 * inflamed + 0.15 * noise[1], 1),
        "systolic": round(128 - 8 * moment - 4 * immobile + 9 * noise[2]),
        "saturation": min(100, round(95 - moment - 0.8 * immobile + noise[3])),
        "crp_mg_l": round(math.exp(3.2 + 0.6 * inflamed + 0.2 * noise[4]), 1),
        "steps": max(0, round(1600 - 350 * immobile + 120 * noise[5])),
        "pain": int(np.clip(round(4 + 1.2 * immobile + 0.6 * noise[6]), 0, 10)),
        "stairs": max(0, round(8 - 2 * immobile + 0.8 * noise[7])),
        "ward": WARDS[int(generator.choice(3, p=wards))],
        "diabetes": bool(generator.random() < (0.35 if complicated else 0.2)),
        "antibiotics": bool(generator.random() < (0.35 if inflamed > 1.0 else 0.2)),
    }
