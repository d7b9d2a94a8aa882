"""Cgroup paths of every manager that puts jobs on GPU nodes."""

from __future__ import annotations

import pytest

from xidwatch.core.job import Job, job_words, parse_cgroup, parse_path, pod_names

ID = "3f2a9c" + "0123456789abcdef" * 3 + "0123456789"
UID = "7d9e1c50-2f3b-4a6e-9b1d-0c2f4e6a8b10"
UNDERSCORED = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/slurm/uid_1000/job_88123/step_0/task_0", Job(slurm_job="88123", slurm_step="0", uid=1000)),
        ("/slurm/uid_1000/job_88123/step_batch/task_0", Job(slurm_job="88123", slurm_step="batch", uid=1000)),
        ("/slurm_gpu-017/uid_0/job_5", Job(slurm_job="5", uid=0)),
        ("/system.slice/slurmstepd.scope/job_88123/step_extern/user/task_special", Job(slurm_job="88123", slurm_step="extern")),
        ("/system.slice/slurmstepd.scope/job_88123/step_1+0/user/task_3", Job(slurm_job="88123", slurm_step="1+0")),
        ("/system.slice/gpu-017_slurmstepd.scope/job_9/step_0/slurm", Job(slurm_job="9", slurm_step="0")),
        ("/../../system.slice/slurmstepd.scope/job_9/step_0", Job(slurm_job="9", slurm_step="0")),
        (f"/kubepods/burstable/pod{UID}/{ID}", Job(pod=UID, container=ID)),
        (f"/kubepods/pod{UID}/{ID}", Job(pod=UID, container=ID)),
        (f"/kubepods/besteffort/pod{UID}", Job(pod=UID)),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
            Job(pod=UID, container=ID, runtime="containerd"),
        ),
        (f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope", Job(pod=UID, container=ID, runtime="cri-o")),
        (f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope/container", Job(pod=UID, container=ID, runtime="cri-o")),
        (f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-conmon-{ID}.scope", Job(pod=UID)),
        (f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/docker-{ID}.scope", Job(pod=UID, container=ID, runtime="docker")),
        (f"/kubepods/burstable/pod{STATIC}/{ID}", Job(pod=STATIC, container=ID)),
        (
            f"/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{ID}",
            Job(pod=UID, container=ID, runtime="containerd"),
        ),
        (
            f"/docker/{STATIC * 2}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
            Job(pod=UID, container=ID, runtime="containerd"),
        ),
        (f"/docker/{ID}", Job(container=ID, runtime="docker")),
        (f"/system.slice/docker-{ID}.scope", Job(container=ID, runtime="docker")),
        (f"/docker/{STATIC * 2}/docker/{ID}", Job(container=ID, runtime="docker")),
        (f"/system.slice/nerdctl-{ID}.scope", Job(container=ID, runtime="containerd")),
        (f"/machine.slice/libpod-{ID}.scope/container", Job(container=ID, runtime="podman")),
        (f"/machine.slice/libpod-conmon-{ID}.scope", Job(unit=f"libpod-conmon-{ID}.scope")),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
            Job(container=ID, runtime="podman", uid=1000),
        ),
        (f"/ecs/my-cluster/{STATIC}/{STATIC}-1234567890", Job(container=f"{STATIC}-1234567890", runtime="docker")),
        (f"/ecs/{UID}/{ID}", Job(container=ID, runtime="docker")),
        ("/lxc/train01", Job(container="train01", runtime="lxc")),
        ("/lxc.payload.train01/system.slice/ssh.service", Job(container="train01", runtime="lxc")),
        ("/lxc.payload/train01", Job(container="train01", runtime="lxc")),
        ("/machine.slice/systemd-nspawn@deb.service/payload", Job(container="deb", runtime="nspawn")),
        (r"/machine.slice/machine-deb\x2d12.scope", Job(container="deb-12", runtime="nspawn")),
        (r"/machine.slice/machine-qemu\x2d3\x2dgpu\x2dguest.scope/libvirt/vcpu0", Job(container="gpu-guest", runtime="libvirt")),
        ("/system.slice/vllm.service", Job(unit="vllm.service")),
        ("/system.slice/system-vllm.slice/vllm@0.service/workers", Job(unit="vllm@0.service")),
        (r"/system.slice/dev-disk\x2dby.mount", Job(unit="dev-disk-by.mount")),
        ("/user.slice/user-1000.slice/session-3.scope", Job(unit="session-3.scope", uid=1000)),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service", Job(unit="jupyter.service", uid=1000)),
        ("/init.scope", Job(unit="init.scope")),
        ("/", Job()),
        ("", Job()),
    ],
)  # fmt: skip
def test_cgroup_path(path: str, expected: Job) -> None:
    """Each manager's form of a path names its job, and nothing that it does not say."""
    assert expected == parse_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "/user.slice/user-1000.slice/user@1000.service/job_7/step_0",
        "/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_7",
        "/user.slice/user-1000.slice/user@1000.service/slurm/uid_0/job_7",
        "/system.slice/vllm.service/job_7",
        "/slurm/uid_1000/job_7x",
    ],
)
def test_a_job_of_the_users_own_naming_is_none(path: str) -> None:
    """Only slurmd's own cgroups count: who may make cgroups could name one after another's job."""
    assert parse_path(path).slurm_job is None


def test_every_hierarchy_is_asked() -> None:
    """Under version 1 and hybrid set-ups only some hierarchies know the job."""
    text = (
        "12:freezer:/slurm/uid_1000/job_7/step_0\n5:pids:/system.slice/slurmd.service\n4:memory:/slurm/uid_1000/job_7/step_0/task_0\n"
        "1:name=systemd:/system.slice/slurmd.service\n0::/system.slice/slurmd.service\n"
    )
    assert Job(slurm_job="7", slurm_step="0", uid=1000) == parse_cgroup(text)


@pytest.mark.parametrize("text", ["", "nonsense", "0::", "x::/slurm/uid_1/job_2", "0::relative", "\0" * 100])
def test_what_is_no_cgroup_file_names_nothing(text: str) -> None:
    """A file that cannot be understood gives no job and no error."""
    assert not parse_cgroup(text)


def test_pod_names_come_from_log_folders() -> None:
    """The cgroup has the UID alone; the kubelet names its log folders after all three."""
    folders = [f"prod_llm-0_{UID}", "lost+found", f"kube-system_kube-proxy_{STATIC}"]
    assert {UID: "prod/llm-0", STATIC: "kube-system/kube-proxy"} == pod_names(folders)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (Job(slurm_job="88123", slurm_step="0", uid=1000, user="alice"), "Slurm job 88123.0, user alice"),
        (Job(pod=UID, pod_name="prod/llm-0", container=ID), "pod prod/llm-0, container 3f2a9c012345"),
        (Job(unit="vllm.service", uid=0), "unit vllm.service, user 0"),
        (Job(container="gpu-guest", runtime="libvirt"), "virtual machine gpu-guest"),
        (Job(), ""),
        (None, ""),
    ],
)
def test_words(job: Job | None, expected: str) -> None:
    """A person reads the job first, then who owns it."""
    assert expected == job_words(job)
