"""`python -m stsbench`."""

import os
import sys

# Python looks for modules in the working folder first: a file tokenize.py there, of a run or of downloaded data, would be
# imported instead of the standard library's module. The console script does not look there either.
if sys.path[:1] in ([""], [os.getcwd()]) and not sys.flags.safe_path:  # noqa: PTH109 - pathlib would come from there
    del sys.path[0]

from stsbench.cli.main import main

main()
