"""`python -m stsbench`."""

import os
import sys

# Python looks for modules in the folder that it is called in first: a file there called tokenize.py, of a run or of data
# from elsewhere, would be imported in the place of the library's. The console script does not look there either.
if sys.path[:1] in ([""], [os.getcwd()]) and not sys.flags.safe_path:  # noqa: PTH109 - pathlib would come from there
    del sys.path[0]

from stsbench.cli.main import main

main()
