"""Memory of one learner by columns and preset, as a Markdown table for docs/limits.md.

``python -m benchmarks.memory`` prints it. `fresh` is after three records, `full` after 3,000 of
which every third gets its label: windows are full, two thousand instances wait. Each figure is
`Learner.state_bytes`, by which the fold goes, remembered ids included.
"""

from typing import Any

import numpy as np

from dtgol_core.config import Config
from dtgol_core.learner import Learner

COLUMNS = (4, 16, 64, 256, 512)
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "light": {"preset": "light"},
    "paper": {"preset": "paper"},
    "small window": {"copula": {"window": 50}, "graph": {"unverified": 50, "verified": 50}},
}
FULL_STEPS = 3_000


def learner(config: Config, columns: int, steps: int) -> Learner:
    """A learner after so many records of numbers."""
    made, chance = Learner(config), np.random.default_rng(0)
    for step in range(steps):
        row = chance.normal(size=columns).tolist()
        made.observe(str(step), {f"f{n}": value for n, value in enumerate(row)})
        if step % 3 == 0:
            made.learn(str(step), step % 2)
    return made


def main() -> None:
    """Print the table."""
    print("| preset | columns | fresh, MB | full, MB |")
    print("|---|---|---|---|")
    for preset, settings in PRESETS.items():
        config = Config.read(settings)
        for columns in COLUMNS:
            sizes = " | ".join(
                f"{learner(config, columns, steps).state_bytes / 1e6:.2f}"
                for steps in (3, FULL_STEPS)
            )
            print(f"| {preset} | {columns} | {sizes} |", flush=True)


if __name__ == "__main__":
    main()
