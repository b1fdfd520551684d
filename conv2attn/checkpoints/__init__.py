"""Files: read without executing anything, recognised by their contents, written whole or not at all."""
