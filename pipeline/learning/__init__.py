"""The learner of one partition: the fold over its journal, and what it writes."""
