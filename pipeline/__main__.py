"""`python -m pipeline` is `dtgol`."""

from pipeline.cli import main

main()
