"""The folder that goes on PYTHONPATH. Nothing here may import promptlint."""
