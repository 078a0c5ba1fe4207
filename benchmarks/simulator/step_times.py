"""Profiles whose steps take another time."""

from paternoster_simulator.profile import Profile


def with_step(profile: Profile, step: dict[str, float]) -> Profile:
    """The profile with another ``step`` section."""
    return Profile.model_validate({**profile.model_dump(), "step": step})


def slowed(profile: Profile, times: float) -> Profile:
    """The profile with steps that take ``times`` as long."""
    step = profile.model_dump()["step"]
    return with_step(profile, {name: seconds * times for name, seconds in step.items()})
