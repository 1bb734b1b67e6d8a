"""Hardware, models, and the prefill and decode cost model."""
