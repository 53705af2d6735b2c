"""`stsbench doctor`, a report on installation, data and devices, and `stsbench cache`; the report changes nothing."""
