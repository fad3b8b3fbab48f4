"""The labelled instances that came last, as arrays: the memory of rehearsing baselines."""

import numpy as np

from dtgol_core.types import FloatArray, IntArray, Vectors


class Memory:
    """A ring of labelled instances.

    Attributes
    ----------
    latent, original : (size, columns)
    labels : (size,)
    """

    def __init__(self, size: int) -> None:
        self.latent = np.zeros((size, 0))
        self.original = np.zeros((size, 0))
        self.labels: IntArray = np.zeros(size, dtype=np.int64)
        self.stored = 0

    def __len__(self) -> int:
        return min(self.stored, len(self.labels))

    def grow(self, columns: int) -> None:
        """Add columns; vectors already here are 0 in them."""
        fresh = np.zeros((len(self.labels), columns))
        self.latent = np.concatenate([self.latent, fresh], axis=1)
        self.original = np.concatenate([self.original, fresh], axis=1)

    def store(self, vectors: Vectors, label: int) -> None:
        """Keep an instance; the oldest goes when the ring is full."""
        place = self.stored % len(self.labels)
        self.latent[place] = vectors.latent
        self.original[place] = vectors.original
        self.labels[place] = label
        self.stored += 1

    def vectors(self, place: int) -> Vectors:
        """The instance at a place."""
        return Vectors.of(self.latent[place], self.original[place])

    def distances(self, latent: FloatArray) -> FloatArray:
        """Squared latent distances to all kept instances."""
        difference = self.latent[: len(self)] - latent
        squared: FloatArray = np.einsum("ij,ij->i", difference, difference)
        return squared
