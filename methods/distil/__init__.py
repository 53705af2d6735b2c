"""Distillation of any encoders into a smaller one."""
