"""Window and session stores: typed faces over key-value stores whose keys are a key and a time."""
