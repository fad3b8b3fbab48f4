"""The commands and code blocks of README.md and docs/ are run, or listed as not run."""
