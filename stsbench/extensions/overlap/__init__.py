"""What data share with test sets: sentences of a set, texts of a training file."""
