"""The metrics by name: type, labels and help. Names and labels are an interface: adding is free, renaming is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Type = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `name` as it is scraped, a counter's with `_total`; `labels` in the order in which totals are kept."""

    name: str
    type: Type
    labels: tuple[str, ...]
    help: str


FAMILIES = (
    Family("xidwatch_build_info", "gauge", ("version", "rules_version"), "1; the version that runs and the rules in force."),
    # what the kernel and the driver said
    Family("xidwatch_xid_events_total", "counter", ("gpu", "gi", "ci", "xid"), "Xid events."),
    Family("xidwatch_xid_last_timestamp_seconds", "gauge", ("gpu", "xid"), "When the latest event of this Xid was logged."),
    Family("xidwatch_sxid_events_total", "counter", ("nvswitch", "sxid", "fatal"), "SXid events."),
    Family(
        "xidwatch_sxid_last_timestamp_seconds", "gauge", ("nvswitch", "sxid", "fatal"),
        "When the latest event of this SXid was logged.",
    ),
    Family("xidwatch_faults_total", "counter", ("class", "severity"), "Events of every kind, as the rules judge them."),
    Family("xidwatch_hung_tasks_total", "counter", ("attribution",), "Hung tasks that the kernel reported."),
    Family("xidwatch_soft_lockups_total", "counter", ("scope",), "Soft lockups that the kernel reported."),
    Family("xidwatch_oom_kills_total", "counter", ("scope",), "Kills by the kernel for want of memory."),
    # what it amounts to
    Family("xidwatch_incidents_total", "counter", ("class", "origin", "severity"), "Incidents, as they were when they opened."),
    Family(
        "xidwatch_incident_active", "gauge", ("gpu", "class", "origin", "severity", "root"),
        "1 for each GPU of an incident that is not over.",
    ),
    Family("xidwatch_incident_start_timestamp_seconds", "gauge", ("gpu", "class", "root"), "When such an incident began."),
    Family("xidwatch_recovery_needed", "gauge", ("gpu", "rung", "when"), "1 while an incident asks for this recovery."),
    Family("xidwatch_investigation_needed", "gauge", ("gpu", "rung"), "1 while an incident asks for this investigation."),
    Family(
        "xidwatch_driver_recovery_action", "gauge", ("gpu", "action", "source"),
        "1 for the recovery action that the driver itself asks for.",
    ),
    Family("xidwatch_maintenance", "gauge", (), "1 while an operator has announced maintenance."),
    # what is so now
    Family(
        "xidwatch_gpu_info", "gauge", ("gpu", "uuid", "index", "name", "serial", "driver_version"),
        "1; which card is in the slot.",
    ),
    Family("xidwatch_gpus", "gauge", ("source",), "GPUs that this source knows."),
    Family("xidwatch_gpus_expected", "gauge", (), "GPUs that the node should have: configured, or seen before."),
    Family("xidwatch_gpu_missing", "gauge", ("gpu",), "1 for a slot whose GPU was there before and is not."),
    Family("xidwatch_tasks_blocked", "gauge", ("attribution",), "Tasks in D state for long."),
    Family("xidwatch_task_blocked_seconds_max", "gauge", ("attribution",), "How long the one that has waited longest has."),
    Family("xidwatch_ecc_errors_total", "counter", ("gpu", "kind"), "Memory errors that the GPU itself counts."),
    Family("xidwatch_row_remap_pending", "gauge", ("gpu",), "1 while a row waits for a reset to be remapped."),
    Family("xidwatch_row_remap_failure", "gauge", ("gpu",), "1 when no spare row was left."),
    Family("xidwatch_memory_banks", "gauge", ("gpu", "spare_rows"), "Banks with that many spare rows left: one or none."),
    Family("xidwatch_throttle_active", "gauge", ("gpu", "reason"), "1 while the GPU clocks down for this reason."),
    Family("xidwatch_regime", "gauge", ("gpu", "regime"), "1 for what bounds the GPU's work at present."),
    Family("xidwatch_nvml_up", "gauge", (), "1 when NVML answered last time."),
    Family("xidwatch_nvml_stuck_seconds", "gauge", (), "How long a question to NVML has been waiting beyond its time."),
    Family("xidwatch_nvml_sample_age_seconds", "gauge", (), "Age of what NVML told last."),
    # how xidwatch itself is
    Family("xidwatch_task_scans_total", "counter", (), "Looks at every task of the node."),
    Family("xidwatch_task_scan_cpu_seconds_total", "counter", (), "Processor time that looking for blocked tasks has cost."),
    Family("xidwatch_task_scan_interval_seconds", "gauge", (), "Time between two looks at every task; it follows their cost."),
    Family("xidwatch_task_scan_tasks", "gauge", (), "Tasks of the node at the latest look."),
    Family("xidwatch_task_scan_up", "gauge", (), "1 while the thread that looks for blocked tasks lives and can see them."),
    Family("xidwatch_task_reads_stuck", "gauge", (), "Threads of xidwatch that wait for a file of a stuck task."),
    Family("xidwatch_source_up", "gauge", ("source",), "1 while the source can be read."),
    Family("xidwatch_source_records_total", "counter", ("source",), "Records read."),
    Family("xidwatch_source_lost_records_total", "counter", ("source",), "Records overwritten before they could be read."),
    Family("xidwatch_source_gaps_total", "counter", ("source",), "Stretches of unknown length that are gone."),
    Family("xidwatch_source_restarts_total", "counter", ("source",), "How often the source was opened again."),
    Family("xidwatch_source_untrusted_total", "counter", ("source",), "Lines of user space that look like a fault's."),
    Family("xidwatch_source_last_record_timestamp_seconds", "gauge", ("source",), "When the newest record was logged."),
    Family("xidwatch_parse_failures_total", "counter", ("kind",), "What is certainly ours and could not be read."),
    Family("xidwatch_detection_latency_seconds", "histogram", ("source",), "From the kernel's line to the counter."),
    Family("xidwatch_demo", "gauge", (), "1 when this node, its GPUs and its kernel's lines are made up; else absent."),
    Family("xidwatch_injection_accepted", "gauge", (), "1 when lines of user space count as the kernel's: a test."),
    Family("xidwatch_rules_reload_success", "gauge", (), "1 when the rules were read without a mistake last time."),
    Family("xidwatch_rules_reload_timestamp_seconds", "gauge", (), "When the rules in force were read."),
    Family("xidwatch_history_up", "gauge", (), "1 while the thread that writes the history lives."),
    Family("xidwatch_history_backlog", "gauge", (), "Entries that wait for the disk."),
    Family("xidwatch_history_write_failures_total", "counter", (), "Writes that failed; they are repeated."),
    Family("xidwatch_history_dropped_total", "counter", (), "Entries that lost their details because too many waited."),
    Family("xidwatch_history_set_aside_total", "counter", (), "History files that could not be used and were renamed."),
    Family("xidwatch_series_withheld", "gauge", (), "Series of incidents left out because there are too many."),
)  # fmt: skip
