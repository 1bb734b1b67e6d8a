"""Readers, recorders and generators of request logs."""
