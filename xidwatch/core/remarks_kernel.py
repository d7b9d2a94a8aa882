"""Whether the kernel tells of what hangs and dies, and whether its words are kept.

Sources: linux, Documentation/admin-guide/sysctl/kernel.rst, sysrq.rst, pstore-blk.rst; systemd, journald.conf(5). journald's
rate limits are not looked at: they are those of services, and kernel messages belong to none (journald-server.c).
"""

from __future__ import annotations

from xidwatch.core.node import Node
from xidwatch.core.remark import Check

_SYSCTL = "/proc/sys/kernel"
_LEVELS = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_WARNING = _LEVELS.index("warning")
_SYNC, _REMOUNT, _REBOOT = 16, 32, 128
_FEW_WARNINGS = 3
_LATE_S = 600
_COPIES = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")


def journald_settings(node: Node) -> dict[str, str]:
    """What is set in the [Journal] part of journald.conf and its drop-ins; the last word wins, by the drop-ins' names."""
    files: dict[str, str] = {}
    for folder in ("/usr/lib", "/usr/local/lib", "/run", "/etc"):
        files |= {
            path.rpartition("/")[2]: text for path, text in node.tree.below(f"{folder}/systemd/journald.conf.d/", ".conf")
        }
    texts = [
        node.tree.texts.get(f"{folder}/systemd/journald.conf") for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib")
    ]
    main = next((text for text in texts if text is not None), "")
    found: dict[str, str] = {}
    for text in (main, *(files[name] for name in sorted(files))):
        part = ""
        for line in text.splitlines():
            key, given, value = line.strip().partition("=")
            if line.strip().startswith("["):
                part = line.strip()
            elif given and part == "[Journal]" and not line.lstrip().startswith(("#", ";")):
                found[key.strip()] = value.strip()
    return found


def _hung_task_timeout(node: Node) -> str | None:
    seconds = node.tree.number(f"{_SYSCTL}/hung_task_timeout_secs")
    if seconds is None:
        known = node.tree.text("/proc/version") is not None and f"{_SYSCTL}/hung_task_timeout_secs" not in node.tree.unread
        return "this kernel has no kernel.hung_task_timeout_secs (built without DETECT_HUNG_TASK)" if known else None
    if seconds == 0:
        return "kernel.hung_task_timeout_secs is 0: the kernel reports no task that hangs"
    return f"kernel.hung_task_timeout_secs is {seconds}" if seconds > _LATE_S else None


def _hung_task_warnings(node: Node) -> str | None:
    left = node.tree.number(f"{_SYSCTL}/hung_task_warnings")
    if left is None or left < 0 or left > _FEW_WARNINGS:
        return None
    return f"kernel.hung_task_warnings is {left}: " + (f"{left} reports are left" if left else "all reports are used up")


def _hung_task_backtraces(node: Node) -> str | None:
    value = node.tree.number(f"{_SYSCTL}/hung_task_all_cpu_backtrace")
    return f"kernel.hung_task_all_cpu_backtrace is {value}" if value else None


def _lockup_detector(node: Node) -> str | None:
    for name in ("watchdog_thresh", "soft_watchdog"):
        if node.tree.number(f"{_SYSCTL}/{name}") == 0:
            return f"kernel.{name} is 0: soft lockups are not reported"
    return None


def _sysrq(node: Node) -> str | None:
    value = node.tree.number(f"{_SYSCTL}/sysrq")
    wanted = _SYNC | _REMOUNT | _REBOOT
    if value is None or value == 1 or value & wanted == wanted:
        return None
    return f"kernel.sysrq is {value}: sync, remount and reboot do not all work from the console"


def _panic(node: Node) -> str | None:
    seconds = node.tree.number(f"{_SYSCTL}/panic")
    dumps = node.tree.number("/sys/kernel/kexec_crash_loaded") == 1
    return "kernel.panic is 0: after a panic the machine stands still" if seconds == 0 and not dumps else None


def _last_words(node: Node) -> str | None:
    if node.tree.text("/proc/version") is None or node.tree.number("/sys/kernel/kexec_crash_loaded") == 1:
        return None
    backend = node.tree.text("/sys/module/pstore/parameters/backend")
    mounted = any(line.split()[2:3] == ["pstore"] for line in (node.tree.text("/proc/mounts") or "").splitlines())
    if backend in (None, "", "(null)"):
        return "neither pstore nor kdump keeps what a dying kernel says (no pstore backend, no crash kernel loaded)"
    return None if mounted else f"pstore has a backend ({backend}) and is not mounted on /sys/fs/pstore"


def _netconsole_level(node: Node) -> str | None:
    level = (node.tree.text(f"{_SYSCTL}/printk") or "").split()[:1]
    consoles = (node.tree.text("/proc/consoles") or "").splitlines()
    if not level or not level[0].isdecimal() or not any(line.startswith("netcon") for line in consoles):
        return None
    heard = int(level[0]) > _WARNING
    return None if heard else f"kernel.printk's console level is {level[0]}: Xid lines (level 4) do not reach netconsole"


def _journal_persistent(node: Node) -> str | None:
    if node.tree.text("/run/systemd/journal/socket") is None or any(path in node.tree.texts for path in _COPIES):
        return None
    storage = journald_settings(node).get("Storage", "auto").lower()
    if storage in ("volatile", "none"):
        return f"journald's Storage= is {storage}, and no syslog keeps the kernel's lines"
    if storage == "auto" and node.tree.complete and "/var/log/journal" not in {*node.tree.texts, *node.tree.unread}:
        return "the journal is in memory only (Storage=auto without /var/log/journal), and no syslog keeps the kernel's lines"
    return None


def _journal_level(node: Node) -> str | None:
    settings = journald_settings(node)
    level = settings.get("MaxLevelStore", "debug").lower()
    number = _LEVELS.index(level) if level in _LEVELS else int(level) if level.isdecimal() else _WARNING
    return f"journald's MaxLevelStore= is {level}: Xid lines are warnings" if number < _WARNING else None


def _journal_kmsg(node: Node) -> str | None:
    value = journald_settings(node).get("ReadKMsg", "yes").lower()
    return f"journald's ReadKMsg= is {value}" if value in ("no", "false", "off", "0", "n", "f") else None


def _clock(node: Node) -> str | None:
    return "the kernel's clock is not synchronized (adjtimex: STA_UNSYNC)" if node.clock_synchronized is False else None


CHECKS = (
    Check(id="hung_task_timeout", look=_hung_task_timeout, command="sysctl -w kernel.hung_task_timeout_secs=120",
          why="a task stuck in the driver or on storage is reported late or never, and a hang looks like a slow job"),
    Check(id="hung_task_warnings", look=_hung_task_warnings, command="sysctl -w kernel.hung_task_warnings=-1",
          why="each report takes one away for good; after the last the kernel is silent about every further hang"),
    Check(id="hung_task_backtraces", look=_hung_task_backtraces, command="sysctl -w kernel.hung_task_all_cpu_backtrace=0",
          why="each hung task prints the stacks of all CPUs and pushes the first fault out of the kernel's ring buffer"),
    Check(id="lockup_detector", look=_lockup_detector, command="sysctl -w kernel.watchdog_thresh=10 kernel.soft_watchdog=1",
          why="a CPU that spins in the driver is not told of"),
    Check(id="sysrq", look=_sysrq, command="sysctl -w kernel.sysrq=176",
          why="on a node that no longer takes logins the serial console is the last way to a reboot that saves the disks "
              "(root's writes to /proc/sysrq-trigger always work)"),
    Check(id="panic", look=_panic, command="sysctl -w kernel.panic=10",
          why="nobody gets in, and nothing is reported, until somebody resets it through the BMC"),
    Check(id="last_words", look=_last_words, command="modprobe efi_pstore; or install kdump-tools (kexec-tools)",
          why="a fault that takes the kernel down is never written to a disk: `xidwatch explain --boot -1` cannot see it"),
    Check(id="netconsole_level", look=_netconsole_level, command="dmesg --console-level info",
          why="the machine that netconsole talks to hears of no Xid"),
    Check(id="journal_persistent", look=_journal_persistent,
          command="mkdir -p /var/log/journal && systemctl restart systemd-journald && journalctl --flush",
          why="a reboot, often the first thing that is tried, erases what happened"),
    Check(id="journal_level", look=_journal_level, command="MaxLevelStore=debug in /etc/systemd/journald.conf",
          why="the journal drops every Xid line"),
    Check(id="journal_kmsg", look=_journal_kmsg, command="ReadKMsg=yes in /etc/systemd/journald.conf",
          why="the kernel's lines are not in the journal at all"),
    Check(id="clock", look=_clock, command="timedatectl set-ntp true; or systemctl enable --now chronyd",
          why="which node failed first cannot be told from their logs"),
)  # fmt: skip
