"""Certificates: results, their document, how it is stored, and how it is checked again."""
