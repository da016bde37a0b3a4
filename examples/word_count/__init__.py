"""Word count: the application (app.py) and a demo that kills it (demo.py)."""
