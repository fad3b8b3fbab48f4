"""The program that tests/unit/core/test_instructions.py runs under callgrind.

`python -m tests.support.instructions PRESET...` makes the fixed run with each preset; callgrind
writes the instructions of the counted records, and of nothing else, to a file for each. Without
callgrind it does the same and writes nothing, which fills Numba's cache.
"""

import ctypes
import gc
import mmap
import sys

from tests.support.fixed_run import Run

# What the macros of valgrind.h compile to, for they cannot be called from Python: a request is an
# array of a code and five arguments, its address in rax, and the answer comes in rdx. On a real
# processor the rotations (128 bits together) and the exchange change nothing.
REQUEST = """
    48 89 f8      mov rax, rdi
    31 d2         xor edx, edx
    48 c1 c7 03   rol rdi, 3
    48 c1 c7 0d   rol rdi, 13
    48 c1 c7 3d   rol rdi, 61
    48 c1 c7 33   rol rdi, 51
    48 87 db      xchg rbx, rbx
    48 89 d0      mov rax, rdx
    c3            ret
"""
CALLGRIND = int.from_bytes(b"CT") << 16
WRITE, START, STOP = CALLGRIND, CALLGRIND + 4, CALLGRIND + 5  # as in callgrind.h

PAGE = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
PAGE.write(b"".join(bytes.fromhex(line[:16]) for line in REQUEST.splitlines()))
ask = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(
    ctypes.addressof(ctypes.c_char.from_buffer(PAGE))
)


def request(code: int) -> None:
    """Make a request of callgrind."""
    ask((ctypes.c_uint64 * 6)(code))


def main() -> None:
    for preset in sys.argv[1:]:
        run = Run(preset)
        gc.disable()  # when it runs depends on all that the process has allocated
        request(START)
        run.go_on()
        request(STOP)
        request(WRITE)
        gc.enable()


if __name__ == "__main__":
    main()
