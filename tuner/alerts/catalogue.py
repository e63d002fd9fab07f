"""All groups of rules: is it there, what is felt, is it safe, is it good, do alerts arrive."""

from collections.abc import Iterable, Iterator

from tuner.alerts import availability, meta, quality, safety, sight, symptoms
from tuner.alerts.rows import Alert, Group
from tuner.alerts.site import Site


def groups(site: Site) -> tuple[Group, ...]:
    """Return the groups of a site; alerts whose threshold its policy does not set are left out."""
    return tuple(
        group for module in (availability, sight, symptoms, safety, quality, meta) for group in module.groups(site)
    )


def alerts(found: Iterable[Group]) -> Iterator[Alert]:
    """Yield the alerts of some groups."""
    return (alert for group in found for alert in group.alerts)
