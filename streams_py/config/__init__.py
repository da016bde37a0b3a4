"""Configuration: the settings of an application, of its clients and of its stores, read from mappings and files."""
