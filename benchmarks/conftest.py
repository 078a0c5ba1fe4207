"""Settings of ``tests``: a busy machine is no fault, so examples may take their time."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite",
    parent=settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")
