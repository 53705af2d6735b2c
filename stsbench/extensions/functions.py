"""What editors and type checkers see of the functions that extensions add to `stsbench`. Nothing imports it at run time."""

from stsbench.extensions.parity.parity import parity as parity
