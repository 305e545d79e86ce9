"""What users import; knows core only."""
