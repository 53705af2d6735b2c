"""Extensions: optional features, which the core finds through entry points alone and works without."""
