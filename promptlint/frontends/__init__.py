"""Front ends: source text in, prompt IR out. They are strangers to each other; `base` is what they share."""
