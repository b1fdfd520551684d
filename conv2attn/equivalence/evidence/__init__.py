"""Inputs that show a difference, and stored certificates, looked at again."""
