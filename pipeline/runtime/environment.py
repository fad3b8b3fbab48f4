"""What must be set in the process before numpy is imported; called by every entry point.

BLAS threads are pinned to one, whatever the caller's environment says: the bits of a state must
not depend on how a machine splits its sums. Compiled kernels are cached in a folder per user.
Standard library only, so that `dtgol --help` stays quick.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import MutableMapping
from importlib.util import find_spec
from pathlib import Path

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def prepare(environ: MutableMapping[str, str] = os.environ) -> None:
    """Pin the BLAS threads and name the kernel cache, unless ``NUMBA_CACHE_DIR`` is set."""
    for name in THREAD_VARIABLES:
        environ[name] = "1"
    if not environ.get("NUMBA_CACHE_DIR"):
        environ["NUMBA_CACHE_DIR"] = str(_writable(kernel_cache(environ)))


def kernel_cache(environ: MutableMapping[str, str]) -> Path:
    """``$DTGOL_CACHE_DIR/kernels``, else ``dtgol/kernels`` in the user's cache folder.

    In it one folder for each version of the kernels, see `kernels_digest`.
    """
    own = environ.get("DTGOL_CACHE_DIR")
    if own:
        return Path(own).absolute() / "kernels" / kernels_digest()
    shared = environ.get("XDG_CACHE_HOME")
    # The XDG specification has relative paths ignored.
    root = Path(shared) if shared and Path(shared).is_absolute() else Path("~/.cache").expanduser()
    return root / "dtgol" / "kernels" / kernels_digest()


def kernels_digest() -> str:
    """A name for the source of all compiled functions.

    Numba looks only at the file of a function that it has in its cache: after an upgrade it would
    go on with one that was compiled together with an older version of a function it calls.
    """
    digest = hashlib.sha256()
    for folder in find_spec("dtgol_core").submodule_search_locations:  # type: ignore[union-attr]
        for path in sorted(Path(folder).rglob("*.py")):
            source = path.read_bytes()
            if b"compiled" in source:
                digest.update(source)
    return digest.hexdigest()[:16]


def _writable(folder: Path) -> Path:
    """The folder, or a private copy for this process where it cannot be written.

    Numba refuses to start without a cache folder that it can write, and trusts what it finds in
    one. In a container with a read-only root the kernels of the image would be compiled again.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    private = tempfile.mkdtemp(prefix="dtgol-kernels-")
    if folder.is_dir():
        shutil.copytree(folder, private, dirs_exist_ok=True)
    return Path(private)
