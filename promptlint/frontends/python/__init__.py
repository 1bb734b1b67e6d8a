"""The Python front end: an abstract interpreter from prompts backwards."""
