"""Small programs with one operator each. ``tests/unit/test_examples.py`` runs them all."""
