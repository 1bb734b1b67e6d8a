"""The parts of `app.simulate`: the set-up, the sample of sessions, and a run over blocks or over tokens."""
