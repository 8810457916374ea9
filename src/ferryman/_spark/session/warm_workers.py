"""Start Python workers warm: import once what every worker needs, then fork.

Spark runs this in place of `pyspark.daemon` when `spark.python.daemon.module` names it. It calls pyspark's
own daemon, and the kernels' `warm`; everything else it only loads.

Without it every new Python worker imports pyarrow, pandas and numba anew. Forking after the imports is safe
here because none of them leaves a thread behind that a child could miss: Spark sets OMP_NUM_THREADS, so that
the linear algebra under numpy starts none, Arrow makes its pools at their first use and anew in a child, and
jemalloc's one thread is stopped and started around a fork by jemalloc itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys

from ferryman._spark.compat.start import serve_workers

_NEEDED = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.fs",
    "pyarrow.ipc",
    "pyarrow.parquet",
    "pandas",
    "numba",
    "lmdb",
    "msgpack",
    "xxhash",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
)

# Loading compiled kernels from numba's cache takes a worker 300 ms more, and compiling them takes seconds.
_COMPILED = ("ferryman._state.kernels", "ferryman._state.aggregates.kernels")


def warm(names: tuple[str, ...] = _NEEDED, compiled: tuple[str, ...] = _COMPILED) -> list[str]:
    """Import modules, leaving out those that fail.

    Parameters
    ----------
    names
        The modules to import.
    compiled
        Modules to import that also have a `warm` of their own, which makes their kernels ready.

    Returns
    -------
    list of str
        The modules that are loaded now.
    """
    loaded = []
    # Spark reads the daemon's port from stdout: a module that greets its user there would break it.
    with contextlib.redirect_stdout(sys.stderr):
        for name in names + compiled:
            # A worker that needs the module will fail with the reason; a daemon that fails takes all with it.
            with contextlib.suppress(Exception):
                module = importlib.import_module(name)
                if name in compiled:
                    module.warm()
                loaded.append(name)
    return loaded


def main() -> None:
    """Load what workers need, and serve Spark as `python -m pyspark.daemon` does."""
    # Spark runs one daemon per worker module. Those that plan a data source need none of this.
    if sys.argv[1:2] == ["pyspark.worker"]:
        warm()
        # Workers collect garbage after every task; 40 ms each time, were all these modules not set aside.
        gc.collect()
        gc.freeze()
    serve_workers()


if __name__ == "__main__":
    main()
