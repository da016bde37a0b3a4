"""The state directory: its layout, locks and checkpoint files."""
