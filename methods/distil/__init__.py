"""Distillation: any encoder teaches a smaller one."""
