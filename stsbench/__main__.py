"""`python -m stsbench`."""

from stsbench.cli.main import main

main()
