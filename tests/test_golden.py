"""The text report of many cases, word for word, as a person sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postmortems import FIXTURES, explained
from xidwatch.core.classify import RuleTable
from xidwatch.render.as_text import render_text

GOLDEN = Path(__file__).parent / "golden"
WIDTH = 110
NAMES = (
    "api_mismatch_rminit_no_firmware",
    "article_box",
    "aer_egpu_then_xid31",
    "fob_same_card_two_boots_short",
    "gb200_149_154_journal_short",
    "gddr_dbe_48_171_63_154_chain",
    "gpud_oom_xid13_iso_decode",
    "hung_nv_open_q_rwsem_journal_us",
    "hung_promtail_ext4",
    "mce_edac_ce_burst_uptime",
    "nccl_after_oom_of_a_rank",
    "nccl_ib_completion_error",
    "nccl_link_down_first",
    "nccl_processes_stood_still",
    "nccl_rank_behind",
    "nccl_ranks_apart",
    "nccl_watchdog_pg_id_guid",
    "none_r8169_xid_641",
    "oom_cut_off",
    "oom_fragmented_2_6",
    "oom_full_hip_wrapped",
    "oom_held_by_other_pid",
    "oom_limited_by_fraction",
    "oom_memcg_burst_efs_csi",
    "oom_vllm_kv_cache",
    "rtxpro6000_no_host_120_154_62_45",
    "slurm_48_63_94_remap",
    "sxid_20009_24007_10001",
    "torch_oom_new_2_5",
    "ubuntu2020_62_31_45_hung_rcu_lockup",
    "vllm_preempt_swap_three_lines",
    "smi_no_device_handle",
    "xid119_a40_hostengine_rpc_history",
    "xid31_llama_between_app_lines_segfault",
    "xid79_cuda_and_nccl_echo",
)
"""Cases across the families: each class of fault, a chain, a storm, an untimed log, a log with nothing in it."""


@pytest.mark.parametrize("name", NAMES)
def test_text_report(name: str, rules: RuleTable, pytestconfig: pytest.Config) -> None:
    """The text report of a case is the one that was reviewed."""
    golden = GOLDEN / f"{name}.txt"
    text = render_text(explained(FIXTURES / name / "input.log", rules), rules, color=False, width=WIDTH)
    if pytestconfig.getoption("--update-expected"):
        golden.write_text(text, encoding="utf-8")
    assert golden.exists(), "no golden file yet: pytest --update-expected, then review it"
    assert golden.read_text(encoding="utf-8") == text


def test_no_golden_file_is_left_over() -> None:
    """Every golden file belongs to a case."""
    assert set() == {path.stem for path in GOLDEN.glob("*.txt")} - set(NAMES)
