"""SciPy without what it takes along in vain.

On its first import SciPy copies every name of NumPy, and so imports NumPy's Fortran compiler, its
test tools and more, which takes longer than the sparse matrices that were asked for. While it
copies, these names stand for nothing; afterwards NumPy imports them as ever, for whoever asks.
"""

IN_VAIN = ("f2py", "testing", "ma", "polynomial")  # nothing in scipy.sparse asks for these


def import_sparse() -> None:
    """Import ``scipy.sparse``; for the command line, where one thread runs and time counts."""
    import numpy as np

    absent = [name for name in IN_VAIN if name not in vars(np)]
    for name in absent:
        setattr(np, name, None)
    try:
        import scipy.sparse  # noqa: F401
    finally:
        for name in absent:
            if vars(np).get(name, np) is None:
                delattr(np, name)
