"""How to measure: one file a protocol, YAML presets for papers that differ only in settings."""
