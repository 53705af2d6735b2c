"""Losses as pure functions of tensors, one equation each."""
