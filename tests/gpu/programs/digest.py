"""What a program here prints: numbers that must be the same, bit for bit, with and without Sluice."""
import hashlib
import sys

SKIPPED = 77  # the exit code that says: this machine lacks what the program needs


def skip(why):
    """Ends the program as skipped."""
    print(why, file=sys.stderr)
    sys.exit(SKIPPED)


def need(*modules):
    """Imports and returns the modules; ends the program as skipped when one is not installed."""
    found = []
    for name in modules:
        try:
            found.append(__import__(name))
        except ImportError as error:
            skip(f"needs the Python package {name}: {error}")
    return found[0] if len(found) == 1 else found


def show(name, array):
    """Prints a digest of the array's bytes (anything that numpy.asarray takes)."""
    import numpy
    array = numpy.ascontiguousarray(array)
    print(f"{name} {array.dtype} {list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}", flush=True)


def deterministic_torch():
    """Imports PyTorch so that the same program gives the same bits twice."""
    import os
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch, _ = need("torch", "numpy")
    if not torch.cuda.is_available():
        skip("needs a GPU that PyTorch can use")
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    return torch
