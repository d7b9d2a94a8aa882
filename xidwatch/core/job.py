"""Whose work a process is: a cgroup path read as Slurm job, pod, container, unit.

The path is the kernel's own; a job's environment or command line, which the job itself may rewrite, is never asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal

from xidwatch.core.pattern import lazy

Runtime = Literal["containerd", "cri-o", "docker", "podman", "lxc", "nspawn", "libvirt"]

_ROOT = r"^(?:/\.\.)*"
"""Seen from another cgroup namespace a path begins with as many `/..` as it takes to leave it."""
_SLURM = lazy(
    _ROOT + r"/(?:slurm(?:_[\w.-]+)?/uid_(?P<uid>\d+)|system\.slice/(?:[\w.-]+_)?slurmstepd\.scope)"
    r"/job_(?P<job>\d+)(?:/step_(?P<step>\w+(?:\+\w+)?))?(?=/|$)"
)
_POD = lazy(
    r"(?:^|[/:])(?:kubepods|[\w.-]*kubepods)[\w.-]*(?:/[\w.-]+)*?[/-]pod"
    r"(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=[./:]|$)"
)
_SCOPED = lazy(
    r"[/:](?P<kind>cri-containerd|containerd|nerdctl|crio|docker|libpod)(?P<side>-conmon)?[-/:](?P<id>[0-9a-f]{12,64})(?=[./]|$)"
)
_BARE = lazy(r"/(?P<id>[0-9a-f]{64})(?=/|$)")
_ECS = lazy(_ROOT + r"/ecs/(?:[\w-]+/)*(?P<id>[0-9a-f]{32}-\d+|[0-9a-f]{64})(?=/|$)")
_LXC = lazy(_ROOT + r"(?:/[\w.-]+)*?/lxc(?:\.payload)?[./](?P<name>[\w.-]+)(?=/|$)")
_NSPAWN = lazy(r"/systemd-nspawn@(?P<name>[^/]+)\.service(?=/|$)")
_MACHINE = lazy(r"/machine-(?P<name>[^/]+)\.scope(?=/|$)")
_NAMED: tuple[tuple[re.Pattern[str], Runtime], ...] = ((_LXC, "lxc"), (_NSPAWN, "nspawn"), (_MACHINE, "nspawn"))
_USER = lazy(_ROOT + r"/user\.slice/user-(?P<uid>\d+)\.slice(?=/|$)")
_UNIT = lazy(r"\.(?:service|scope|socket|mount|swap)$")
_ESCAPE = lazy(r"\\x([0-9a-f]{2})")
_NAMES: dict[str, Runtime] = {
    "cri-containerd": "containerd", "containerd": "containerd", "nerdctl": "containerd", "crio": "cri-o", "docker": "docker",
    "libpod": "podman",
}  # fmt: skip
_MOST = 4096
"""Longest cgroup path that the kernel gives (PATH_MAX)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Whose work it is. None: the cgroup does not say.

    Attributes:
        slurm_job, slurm_step: `88123`; `0`, `batch`, `extern`.
        pod: Its UID, with dashes. Kubernetes puts no name into the cgroup.
        pod_name: `namespace/name`, where the node's log folder tells.
        container, runtime: Its full id, or its name where containers have names (LXC, nspawn, a virtual machine).
        unit: systemd unit, `vllm.service`.
        uid, user: Whose process it is; the name where the node knows it.
    """

    slurm_job: str | None = None
    slurm_step: str | None = None
    pod: str | None = None
    pod_name: str | None = None
    container: str | None = None
    runtime: Runtime | None = None
    unit: str | None = None
    uid: int | None = None
    user: str | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, one.name) is not None for one in fields(self))


def parse_cgroup(text: str) -> Job:
    """The job in the text of /proc/PID/cgroup; an empty one where it names none.

    Version 1 has a line for each hierarchy (`4:memory:/slurm/uid_1000/job_7`), version 2 one (`0::/system.slice/…`), a hybrid
    both. What any of them tells is taken.

    Sources: cgroups(7); Slurm, src/plugins/cgroup/v1 and v2; Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go; containerd,
    docs/cri/config.md (SystemdCgroup); Podman, libpod/container_internal_linux.go; systemd, docs/CGROUP_DELEGATION.md.
    """
    found = Job()
    for path in dict.fromkeys(_paths(text)):
        more = parse_path(path)
        found = replace(
            found,
            **{one.name: value for one in fields(more) if (value := getattr(more, one.name)) is not None
               and (getattr(found, one.name) is None or (one.name == "unit" and found.unit == "init.scope"))},
        )  # fmt: skip
    return replace(found, unit=None) if found.slurm_job or found.pod or found.container else found


def parse_path(path: str) -> Job:
    """The job that one cgroup path names, such as an OOM kill's `task_memcg=`.

    A Slurm job counts only where slurmd makes it: below its own top-level cgroup. A user who may make cgroups of his own
    could name one `job_1` elsewhere.
    """
    path = path[:_MOST]
    slurm, pod = _SLURM.match(path), _POD.search(path)
    container, runtime = _container(path, in_pod=pod is not None)
    user = _USER.match(path)
    uid = slurm["uid"] if slurm and slurm["uid"] else user["uid"] if user else None
    return Job(
        slurm_job=slurm["job"] if slurm else None,
        slurm_step=slurm["step"] if slurm else None,
        pod=_dashed(pod["uid"]) if pod else None,
        container=container,
        runtime=runtime,
        unit=None if slurm or pod or container else _unit(path),
        uid=int(uid) if uid is not None and len(uid) < 11 else None,
    )


def pod_names(folders: Iterable[str]) -> dict[str, str]:
    """UID -> `namespace/name`, from the folder names in /var/log/pods: `namespace_name_uid`.

    Source: Kubernetes, pkg/kubelet/kuberuntime/helpers.go, BuildPodLogsDirectory; neither part may hold an underscore.
    """
    parts = [folder.split("_") for folder in folders]
    return {three[2]: f"{three[0]}/{three[1]}" for three in parts if len(three) == 3}


def job_words(job: Job | None) -> str:
    """`Slurm job 88123.0, user alice`; `pod prod/llm-0, container 3f2a…`; empty where nothing is known."""
    return ", ".join(_words(job)) if job is not None else ""


def _words(job: Job) -> Iterator[str]:
    if job.slurm_job is not None:
        yield f"Slurm job {job.slurm_job}" + (f".{job.slurm_step}" if job.slurm_step is not None else "")
    if job.pod is not None:
        yield f"pod {job.pod_name or job.pod}"
    if job.container is not None:
        named = job.runtime in ("lxc", "nspawn", "libvirt")
        noun = "virtual machine" if job.runtime == "libvirt" else "container"
        yield f"{noun} {job.container if named else job.container[:12]}"
    if job.unit is not None:
        yield f"unit {job.unit}"
    if job.user is not None or job.uid is not None:
        yield f"user {job.user if job.user is not None else job.uid}"


def _paths(text: str) -> Iterator[str]:
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[0].isdecimal() and parts[2].startswith("/"):
            yield parts[2]


def _container(path: str, *, in_pod: bool) -> tuple[str | None, Runtime | None]:
    """Of nested ones the innermost; the helper beside a container (`conmon`) is none."""
    scoped = [found for found in _SCOPED.finditer(path) if not found["side"]]
    if scoped:
        return scoped[-1]["id"], _NAMES[scoped[-1]["kind"]]
    if found := _ECS.match(path):
        return found["id"], "docker"
    if in_pod and (bare := _BARE.findall(path)):
        return bare[-1], None
    for pattern, runtime in _NAMED:
        if found := pattern.search(path):
            name = _unescaped(found["name"])
            if name.startswith("qemu-"):
                return name.removeprefix("qemu-").partition("-")[2] or name, "libvirt"
            return name, runtime
    return None, None


def _dashed(uid: str) -> str:
    """Underscores stand for dashes in a slice's name; a static pod has a hash without any."""
    return uid.replace("_", "-")


def _unit(path: str) -> str | None:
    """The innermost part that is a unit; what a service makes below itself is its own affair."""
    units = [part for part in path.split("/") if _UNIT.search(part)]
    return _unescaped(units[-1]) if units else None


def _unescaped(name: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), name)
