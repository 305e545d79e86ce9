"""Settings that all tests share."""

from hypothesis import settings

# A deadline per example measures the machine, not the code: two cores are shared by all workers.
# Everything else stays as Hypothesis chose it, which under CI means repeatable examples.
settings.register_profile("servo", settings(), deadline=None)
settings.load_profile("servo")
