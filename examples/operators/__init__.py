"""One operator each, as small programs; ``tests/unit/test_examples.py`` runs them all."""
