"""What users configure of a task: handlers, serdes, timestamp extractors."""
