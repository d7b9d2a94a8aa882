"""Hung tasks: the kernel found a task blocked for too long (kernel/hung_task.c; sched_show_task in kernel/sched/core.c).

Knows the reports of Linux 2.6 to 7.0: head, `Tainted` line, state line, stack, lock owner and its dump.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from xidwatch.core.event import Attribution, Event, HungTaskDetail
from xidwatch.core.pattern import lazy
from xidwatch.core.record import Record, gap_s
from xidwatch.core.stack import (
    FRAME_WORDS,
    added,
    gpu_frame,
    is_gpu_module,
    is_gpu_thread,
    may_be_kernel,
    parse_frame,
    read_frames,
)

LITERALS: tuple[str, ...] = (
    "blocked for more than",
    "blocked in I/O wait for more than",
    "state:D",
    "blocked on a",
    "hung task reports are suppressed",
)
FURTHER: tuple[str, ...] = (
    "likely ", "state:", "Tainted:", "Not tainted", "Workqueue: ", "</TASK>", "RIP: 00", "NMI backtrace for cpu", "CPU: ",
    "Showing all locks held", "INFO: lockdep is", "Call Trace:", "Call trace:", *FRAME_WORDS,
    *(f"{gap}{state}{behind}" for gap in " \t" for state in "DRS" for behind in " \t0123456789"),
)  # fmt: skip
_LONGEST_BLOCK = 250
_BLOCK_GAP_S = 20.0
"""A serial console prints a long stack in a few seconds; what comes later is another report's."""

_HEAD = lazy(
    r"INFO: task (?P<name>.{0,120}):(?P<pid>\d+) blocked (?P<io>in I/O wait )?for more than(?:\s+(?P<s>\d+) seconds)?",
    re.DOTALL,
)
_HALF_HEAD = lazy(r":(?P<pid>\d+) blocked (?P<io>in I/O wait )?for more than (?P<s>\d+) seconds\.$")
_BLOCKER = lazy(
    r"INFO: task (?P<name>.{0,120}):(?P<pid>\d+)(?: <\w+>)?(?: is)? blocked on an? (?P<lock>mutex|semaphore|rw-semaphore)\b"
)
_OWNER = lazy(r"likely (?:last held|owned) by task (.{0,120}):(\d+)")
_STATE = lazy(
    r"task:(?P<name>.{0,120}?)\s+state:(?P<state>\w)(?:\s+running task)?(?:\s+stack:\s*\d+\s+pid:\s*(?P<pid>\d+))?", re.DOTALL
)
_HALF_STATE = lazy(r"\sstate:\w\s+stack:\s*\d+\s+pid:\s*(\d+)")
_PARENT = lazy(r"\bppid:\s*(\d+)")
_OLD_STATE = lazy(r"\s[DRS](?![a-f])\s*(?:[0-9a-f]{8,16}\s+)?\d+\s+(?P<pid>\d+)\s+(?P<ppid>\d+)(?:\s|$)")
_KERNEL = lazy(r"^\s*(?:Not tainted|Tainted:.*?)\s+(\d+\.\d+\S*)")
_WORKQUEUE = lazy(r"^\s*Workqueue: (.+)")
_END = lazy(
    r"^\s*(?:</TASK>|RIP: 00(?:33|2b|23):|NMI backtrace for cpu|CPU: \d+ .*Comm:|Showing all locks held|INFO: lockdep is)"
)
_NEXT_TRACE = lazy(r"^\s*Call [Tt]race:")


def _prefixes(words: str) -> re.Pattern[str]:
    """Matches a name that begins with one of the words, whatever underscores stand in front."""
    return lazy(f"_*(?:{'|'.join(words.split())})")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WAITING = _prefixes("""
    schedule io_schedule rwsem mutex down up_ wait bit_wait out_of_line_wait folio_wait percpu_ rt_ ww_ call_rwsem rpc_wait
    preempt_schedule context_switch switch_to lock_page msleep do_wait
""")
"""Functions of the wait itself; the first that is none of them is who waits."""
_NETWORK_STORAGE = _prefixes("""
    nfs_ nfs\\d_ nfsd_ nfsd\\d_ rpc_ ceph_ cifs_ smb\\d?_ p9_ v9fs_ ll_ ptlrpc_ ldlm_ osc_ gfs2_ afs_
""")
_STORAGE = _prefixes("""
    ext[234]_ jbd2?_ kjournald xfs_ btrfs_ f2fs_ ocfs2_ reiserfs_ fuse_ ovl_ zfs zpl_ zil_ zio_ dmu_ dsl_ arc_ dbuf_ spa_ txg_
    md_ raid\\d+ dm_ bch_ blk_ blkdev_ blkcg_ nvme_ scsi_ sd_ sr_ nbd_ rbd_ loop_ drbd submit_bio submit_bh rq_qos wbt_ iomap_
    io_schedule bit_wait_io folio_wait wait_on_page wait_on_buffer sleep_on_buffer sleep_on_page filemap_fdatawait lock_page
    lock_buffer get_request_wait mnt_want_write sb_start_write sync_inodes writeback_ wb_wait balance_dirty freeze_super
    thaw_super sync_filesystem swap_readpage shrink_
""")
_NETWORK = _prefixes("""
    rtnl_ rtnetlink_ netdev_ netif_ unregister_netdev register_netdev cleanup_net netns_ copy_net_ns setup_net ops_exit_list
    sock lock_sock tcp_ udp_ inet6?_ ip6?_ netlink_ genl_ dev_ioctl dev_change ib_ rdma_ mlx\\d_ ipoib nf_ nft_ wg_ bond_ br_
""")
_STORAGE_MODULES = _words("""
    ext4 jbd2 jbd xfs btrfs f2fs zfs spl zunicode fuse overlay dm_mod dm_crypt dm_multipath md_mod raid0 raid1 raid10 raid456
    bcache nvme nvme_core nvme_fabrics nvme_tcp nvme_rdma scsi_mod sd_mod libata megaraid_sas mpt3sas loop nbd drbd ocfs2
    virtio_blk virtio_scsi vdo
""")
_NETWORK_STORAGE_MODULES = _words("""
    nfs nfsv3 nfsv4 nfsd sunrpc lockd lustre ptlrpc osc mdc lov lmv obdclass lnet ksocklnd ko2iblnd ceph libceph rbd cifs smb3
    9p 9pnet 9pnet_fd 9pnet_virtio gfs2 dlm mmfs26 mmfslinux wekafsio wekafsgw beegfs iscsi_tcp libiscsi orangefs kafs
""")
_NETWORK_MODULES = _words("""
    ib_core rdma_cm rdma_ucm ib_uverbs mlx4_core mlx4_ib mlx5_core mlx5_ib bnxt_en ixgbe ice i40e e1000e igb bonding bridge
    nf_tables nf_conntrack wireguard openvswitch ipv6 tun veth cfg80211
""")
_STORAGE_THREAD = _prefixes("""
    jbd2?/ kjournald xfs(?:aild|-|_|bufd|syncd|logd) btrfs ext4 txg_ z_ zvol arc_ l2arc dbu_ spa_ md\\d+_ mdX dm- dmcrypt dm_
    kdmflush kcryptd kblockd kswapd kcompactd khugepaged ksmd flush- bdi- writeback pdflush scsi_ bcache bch_ loop\\d nbd\\d
    nvme raid
""")
_NETWORK_STORAGE_THREAD = _prefixes(
    "nfsd nfsv4 nfs4 nfsio rpciod lockd ceph cifsd ptlrpcd ll_ mdt ost ldlm lov kiblnd socknal drbd"
)
_NETWORK_THREAD = _prefixes("netns ksoftirqd krdsd ib_ napi/ rdma mlx")
_NETWORK_STORAGE_WORK = lazy(r"ceph|nfs|rpciod|xprtiod|cifs")
_STORAGE_WORK = lazy(r"writeback|xfs|ext4|jbd2|btrfs|\bmd|dm-|kcryptd|nvme|scsi|blk|loop|disk_events")
_NETWORK_WORK = lazy(r"netns|cleanup_net|linkwatch|ipv6|addrconf|\bib|rdma|mlx|bond")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a task waits for, whether that is the GPU (None: perhaps), and the evidence in words."""

    attribution: Attribution
    gpu_related: bool | None
    why: str


def start(record: Record) -> tuple[Event, ...]:
    """The hung task that begins on this record.

    A head, the second half of one that a newline in the task's name broke in two, or, where the log lost the head, the
    `task:NAME state:D` line or the line about the lock's owner.
    """
    text = record.text
    if head := _HEAD.search(text):
        seconds = int(head["s"]) if head["s"] else None
        detail = HungTaskDetail(blocked_s=seconds, io_wait=head["io"] is not None)
        return _begin(record, head, detail)
    if (half := _HALF_HEAD.search(text)) and (record.wall_us or record.since_boot_us) and record.program is None:
        detail = HungTaskDetail(blocked_s=int(half["s"]), io_wait=half["io"] is not None)
        return (_judged(_event(record, None, int(half["pid"]), detail)),)
    if blocker := _BLOCKER.search(text):
        detail = HungTaskDetail(lock=blocker["lock"], blocked_by=_owner(text))
        return _begin(record, blocker, detail)
    if (state := _STATE.search(text)) and state["state"] == "D" and state["pid"]:
        return _begin(record, state, HungTaskDetail(kernel_thread=_is_kernel_thread(text)))
    return ()


def extend(event: Event, record: Record) -> Event | None:
    """The same hung task with what a further line of its block says; None when the line belongs to something else."""
    detail = event.detail
    if record.program is not None or not isinstance(detail, HungTaskDetail) or _HEAD.search(record.text):
        return None
    gap = gap_s(event.last_record, record)
    if gap is not None and not -_BLOCK_GAP_S <= gap <= _BLOCK_GAP_S:
        return None
    if "hung task reports are suppressed" in record.text:
        return replace(event, count_is_minimum=True, last_record=record)
    for read in _READERS:
        if (richer := read(event, detail, record.text)) is not None:
            return _judged(replace(event, detail=richer, last_record=record))
    return None


def open_for(event: Event) -> int:
    """How many further records may belong to it: the longest stack, its owner's, and what other CPUs print between."""
    return _LONGEST_BLOCK


def _begin(record: Record, match: re.Match[str], detail: HungTaskDetail) -> tuple[Event, ...]:
    if not may_be_kernel(record, match):
        return ()
    return (_judged(_event(record, match["name"], int(match["pid"]), detail)),)


def _event(record: Record, process: str | None, pid: int, detail: HungTaskDetail) -> Event:
    uid = (record.stream, record.seq, 0)
    return Event(uid=uid, kind="hung_task", record=record, last_record=record, pid=pid, process=process or None, detail=detail)


def _owner(text: str) -> str | None:
    found = _OWNER.search(text)
    return f"{found[1]}:{found[2]}" if found else None


def _is_kernel_thread(text: str) -> bool | None:
    parent = _PARENT.search(text)
    return parent[1] == "2" if parent else None


def _read_blocker(event: Event, detail: HungTaskDetail, text: str) -> HungTaskDetail | None:
    if blocker := _BLOCKER.search(text):
        if int(blocker["pid"]) != event.pid:
            return None
        return replace(detail, lock=blocker["lock"], blocked_by=_owner(text) or detail.blocked_by)
    if detail.blocked_by is None and (detail.lock or _is_wrapped_blocker(event)) and text.lstrip().startswith("likely "):
        return replace(detail, blocked_by=_owner(text))  # wrapped by a mail program or a terminal
    return None


def _is_wrapped_blocker(event: Event) -> bool:
    return _BLOCKER.search(event.last_record.text) is not None


def _read_state(event: Event, detail: HungTaskDetail, text: str) -> HungTaskDetail | None:
    half = _HALF_STATE.search(text)  # all that is left of it when the name has a newline in it
    if half and int(half[1]) == event.pid:
        return replace(detail, kernel_thread=_is_kernel_thread(text))
    if state := _STATE.search(text):
        nameless = state["pid"] is None and state["name"] == event.process
        return detail if nameless else _read_owner_state(detail, state["pid"])
    old = _OLD_STATE.search(text)
    if old and int(old["pid"]) == event.pid:
        return replace(detail, kernel_thread=old["ppid"] == "2")
    return None


def _read_owner_state(detail: HungTaskDetail, pid: str | None) -> HungTaskDetail | None:
    if pid is None or detail.owner_stack is not None or not (detail.blocked_by or "").endswith(f":{pid}"):
        return None
    return replace(detail, owner_stack=(), in_block=True)


def _read_kernel(event: Event, detail: HungTaskDetail, text: str) -> HungTaskDetail | None:
    found = _KERNEL.match(text)
    return replace(detail, kernel=found[1]) if found and detail.kernel is None else None


def _read_workqueue(event: Event, detail: HungTaskDetail, text: str) -> HungTaskDetail | None:
    found = _WORKQUEUE.match(text)
    if found is None or detail.workqueue is not None or not detail.in_block or detail.owner_stack is not None:
        return None
    return replace(detail, workqueue=found[1].strip())


def _read_frames(event: Event, detail: HungTaskDetail, text: str) -> HungTaskDetail | None:
    if not detail.in_block or not (frames := read_frames(text)):
        return None
    sure = tuple(frame for frame in frames if frame.reliable)
    if detail.owner_stack is not None:
        return replace(detail, owner_stack=added(detail.owner_stack, sure))
    guesses = tuple(frame for frame in frames if not frame.reliable)
    return replace(detail, stack=added(detail.stack, sure), doubtful=added(detail.doubtful, guesses))


def _read_end(event: Event, detail: HungTaskDetail, text: str) -> HungTaskDetail | None:
    if not detail.in_block:
        return None
    begun = detail.owner_stack if detail.owner_stack is not None else detail.stack + detail.doubtful
    if _END.match(text) or (begun and _NEXT_TRACE.match(text)):
        return replace(detail, in_block=False)
    return None


_READERS: tuple[Callable[[Event, HungTaskDetail, str], HungTaskDetail | None], ...] = (
    _read_blocker, _read_state, _read_kernel, _read_workqueue, _read_frames, _read_end,
)  # fmt: skip


def _judged(event: Event) -> Event:
    """The event with what its stack, its name and the lock's owner tell: attribution, evidence, whether SIGKILL ends it."""
    detail = event.detail
    if not isinstance(detail, HungTaskDetail):
        return event
    found = attribute(event.process, detail) or _without_evidence(detail)
    judged = replace(
        detail,
        attribution=found.attribution,
        gpu_related=found.gpu_related,
        why=found.why,
        killable=_killable(detail.stack) if detail.stack else None,
    )
    return replace(event, detail=judged)


def attribute(process: str | None, detail: HungTaskDetail) -> Finding | None:
    """What a task of this name waits for, by its stack, its name, its work item and the lock's owner; None without evidence."""
    return _by_gpu(process, detail) or _by_stack(detail) or _by_name(process, detail) or _by_guesses(detail)


def _by_gpu(process: str | None, detail: HungTaskDetail) -> Finding | None:
    if frame := gpu_frame(map(parse_frame, detail.stack)):
        return Finding("gpu", True, f"waits in {frame}")
    if detail.workqueue and (module := re.search(r"\[([\w-]+)\]", detail.workqueue)) and is_gpu_module(module[1]):
        return Finding("gpu", True, f"runs the work item {detail.workqueue}")
    if process and detail.kernel_thread is not False and is_gpu_thread(process):
        return Finding("gpu", True, f"{process} is a kernel thread of the GPU driver")
    if detail.blocked_by and is_gpu_thread(detail.blocked_by.rpartition(":")[0]):
        return Finding("gpu", True, f"waits for a lock held by {detail.blocked_by}, a thread of the GPU driver")
    if detail.owner_stack and (frame := gpu_frame(map(parse_frame, detail.owner_stack))):
        return Finding("gpu", True, f"waits for a lock whose owner {detail.blocked_by} is in {frame}")
    return None


def _by_stack(detail: HungTaskDetail) -> Finding | None:
    if not detail.stack:
        return None
    if (guess := gpu_frame(map(parse_frame, detail.doubtful))) and guess.module is not None:
        return Finding("unknown", None, f"the only GPU frame, {guess}, is one that the unwinder could not vouch for")
    if (found := _by_frames(detail.stack)) is not None:
        return found
    # The scheduler's and the lock's own frames are in every stack: they do not tell who waits.
    if all(_WAITING.match(entry) or entry.startswith("__schedule") for entry in detail.stack):
        return None
    return Finding("other", False, f"waits in {_first_caller(detail.stack)}, outside any GPU driver")


def _by_guesses(detail: HungTaskDetail) -> Finding | None:
    """Kernels without frame pointers vouch for no frame at all: then the guesses are the stack."""
    if not detail.doubtful:
        return None
    if frame := gpu_frame(map(parse_frame, detail.doubtful)):
        return Finding("gpu", True, f"waits in {frame} (the unwinder vouches for no frame)")
    return _by_frames(detail.doubtful)


def _by_frames(stack: tuple[str, ...]) -> Finding | None:
    frames = tuple(map(parse_frame, stack))
    for frame in frames:
        if frame.module in _NETWORK_STORAGE_MODULES or _NETWORK_STORAGE.match(frame.function):
            return Finding("storage", False, f"waits for a network file system in {frame}")
    for frame in frames:
        if frame.module in _STORAGE_MODULES or _STORAGE.match(frame.function):
            return Finding("storage", False, f"waits for storage in {frame}")
    for frame in frames:
        if frame.module in _NETWORK_MODULES or _NETWORK.match(frame.function):
            return Finding("network", False, f"waits for the network stack in {frame}")
    return None


def _by_name(process: str | None, detail: HungTaskDetail) -> Finding | None:
    """What a kernel thread's name or work item tells where the stack is missing."""
    work = detail.workqueue or ""
    name = (process or "") if detail.kernel_thread is not False else ""
    if _NETWORK_STORAGE_WORK.search(work) or _NETWORK_STORAGE_THREAD.match(name):
        return Finding("storage", False, f"{work or name} works for a network file system")
    if _STORAGE_WORK.search(work) or _STORAGE_THREAD.match(name):
        return Finding("storage", False, f"{work or name} works for storage")
    if _NETWORK_WORK.search(work) or _NETWORK_THREAD.match(name):
        return Finding("network", False, f"{work or name} works for the network stack")
    if work:
        return Finding("other", False, f"runs the work item {work}, which is no GPU driver's")
    return None


def _without_evidence(detail: HungTaskDetail) -> Finding:
    if detail.io_wait:
        return Finding("storage", None, "the kernel counts it as waiting for input or output; the stack is missing")
    return Finding("unknown", None, "the log holds no stack of it")


def _first_caller(stack: tuple[str, ...]) -> str:
    return next((entry for entry in stack if not _WAITING.match(entry)), stack[0])


def _killable(stack: tuple[str, ...]) -> bool:
    """Whether the innermost wait is one that SIGKILL ends: only frames of the wait itself count, not those of its callers."""
    for entry in stack:
        if "_killable" in entry:
            return True
        if not _WAITING.match(entry):
            return False
    return False
