"""DT-GOL as a pure library: dual-track geometric online learning with late labels.

Nothing here does I/O, reads a clock or draws a random number. Start at `learner.Learner`.
"""
