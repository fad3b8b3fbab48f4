"""Faust with this project's manners: the app, and what its consumer must be told to be safe."""
