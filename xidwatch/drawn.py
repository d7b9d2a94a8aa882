"""Incidents as the JSON objects that followers and state.json show. Each is drawn once, however often it is shown."""

from __future__ import annotations

from xidwatch.core.classify import RuleTable
from xidwatch.core.incident import HostReport, Incident
from xidwatch.render.as_json import incident_object

_MOST = 512


class Drawn:
    """May be asked from several threads: at worst an object is drawn twice."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[Incident, RuleTable, tuple[HostReport, ...], dict[str, object]]] = {}

    def of(self, incident: Incident, rules: RuleTable, hosts: tuple[HostReport, ...]) -> dict[str, object]:
        """The object; nobody may change it."""
        kept = self._objects.get(incident.id)
        if kept is not None and kept[0] is incident and kept[1] is rules and kept[2] == hosts:
            return kept[3]
        drawn = incident_object(incident, rules, hosts)
        if len(self._objects) >= _MOST:
            self._objects = {}
        self._objects[incident.id] = incident, rules, hosts, drawn
        return drawn

    def forget(self, incident: Incident) -> None:
        """It is over, and will not be shown again."""
        self._objects.pop(incident.id, None)
