"""What stands between the compared layers: as it is stored, and as it runs."""
