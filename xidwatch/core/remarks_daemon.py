"""Whether xidwatch itself watches, sees, and tells."""

from __future__ import annotations

from xidwatch.core.node import Node
from xidwatch.core.remark import Check

_HOOK = "/sys/fs/cgroup/system.slice/xidwatch-hook.service/cgroup.procs"
_SYSTEM_SLICE = "/sys/fs/cgroup/system.slice/cgroup.procs"


def _daemon(node: Node) -> str | None:
    return f"the daemon does not watch: {node.daemon_why}" if node.daemon is None and node.daemon_why else None


def _source(node: Node) -> str | None:
    down = [source.name for source in node.daemon.sources if not source.up] if node.daemon is not None else []
    return f"the daemon cannot read: {', '.join(down)}" if down else None


def _injection(node: Node) -> str | None:
    return (
        "the daemon believes lines that user space wrote (--accept-injected)"
        if node.daemon and node.daemon.injection_accepted
        else None
    )


def _rules(node: Node) -> str | None:
    mistakes = node.daemon.rules_mistakes if node.daemon is not None else ()
    return f"the last reload of the rules failed: {mistakes[0]}" if mistakes else None


def _history(node: Node) -> str | None:
    error = node.daemon.history_error if node.daemon is not None else None
    return f"history is not written: {error}" if error else None


def _nvml(node: Node) -> str | None:
    if not any(node.ours()):
        return None
    if node.nvml == "released":
        return "NVML is released: an operator took xidwatch off the GPUs"
    return f"NVML cannot be asked: {node.nvml_why}" if node.nvml == "off" and node.nvml_why else None


def _hook(node: Node) -> str | None:
    """The unit's control group is there while it runs; of a machine without such groups nothing is said."""
    if not node.hook_configured or _SYSTEM_SLICE not in node.tree.texts or node.tree.text(_HOOK):
        return None
    return "config.toml has a [hook] and xidwatch-hook.service does not run"


CHECKS = (
    Check(id="daemon", look=_daemon, command="systemctl enable --now xidwatch",
          why="the kernel's log goes unread: no page, no metrics, no history, and this check can only ask NVML"),
    Check(id="source", look=_source, command="xidwatch status; journalctl -u xidwatch",
          why="what only that source has is not seen"),
    Check(id="injection_accepted", look=_injection, command="systemctl revert xidwatch && systemctl restart xidwatch",
          why="anybody who can write to /dev/kmsg or log as root can drain this node"),
    Check(id="rules_reload", look=_rules, command="xidwatch rules check /etc/xidwatch/rules.d",
          why="the old rules are in force, not those on the disk"),
    Check(id="history", look=_history, command="xidwatch status; df /var/lib/private/xidwatch",
          why="what happens now is forgotten at the next restart"),
    Check(id="nvml", look=_nvml, command="xidwatch nvml resume; or pip install 'xidwatch[nvml]'",
          why="pending remaps, lost and missing GPUs are seen only if the kernel prints a line about them"),
    Check(id="hook", look=_hook, command="systemctl enable --now xidwatch-hook",
          why="incidents reach nobody through it"),
)  # fmt: skip
