"""The live page in headless Chromium, as Debian packages it."""
