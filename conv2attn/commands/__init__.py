"""What the commands do, between the files and the reports."""
