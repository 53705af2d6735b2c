"""Starting points for a method, a protocol or a kind of encoder of one's own: working code with its test."""
