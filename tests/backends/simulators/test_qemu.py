"""The runner: exact counts on known code, faults, limits and missing tools."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tosaic.backends.simulators.execution import Cost
from tosaic.support.errors import BackendError, SimulatorError


def test_console_and_exit_code(qemu, build):
    execution = qemu.run(build('int main(void) { host_print("hello\\n"); host_print_hex(0xc0ffee); return 42; }'), {})
    assert (execution.exit_code, execution.console, execution.costs) == (42, "hello\n0x00c0ffee", ())
    with pytest.raises(SimulatorError, match="the guest did not run to its end\n  because: hello"):
        execution.check("the guest")


def test_files_go_in_and_come_out(qemu, build):
    elf = build("""
        int main(void) {
            uint32_t word;
            host_file in = host_open("in.bin", HOST_READ), out = host_open("out.bin", HOST_WRITE);
            host_read(in, &word, 4);
            word++;
            host_write(out, &word, 4);
            host_close(out);
            return 0;
        }""")
    assert qemu.run(elf, {"in.bin": b"\x01\x02\x03\x04"}).files == {"out.bin": b"\x02\x02\x03\x04"}


def test_counts_of_straight_line_code_and_loops_are_exact(qemu, build):
    elf = build("""
        int main(void) {
            __asm__ volatile("mov r9, r9\\n nop\\n nop\\n nop\\n mov r10, r10");
            __asm__ volatile("mov r9, r9\\n mov r10, r10");
            __asm__ volatile("movs r0, #100\\n mov r9, r9\\n 1: subs r0, #1\\n nop\\n bne 1b\\n"
                             "mov r10, r10" ::: "r0", "cc");
            __asm__ volatile("movw lr, #1000\\n mov r9, r9\\n dls lr, lr\\n 2: vadd.i8 q0, q0, q1\\n nop\\n"
                             "le lr, 2b\\n nop\\n mov r10, r10" ::: "lr", "q0", "q1");
            return 0;
        }""")
    counts = [cost.instructions for cost in qemu.run(elf, {}).costs]
    # Three instructions a round: `le` is one of them.
    assert counts == [3, 0, 300, 1 + 3 * 1000 + 1]


def test_counts_follow_calls_and_repeat(qemu, build):
    elf = build("""
        __attribute__((naked, noinline)) void five(void) { __asm__("nop\\n nop\\n nop\\n nop\\n bx lr"); }
        int main(void) {
            for (int i = 0; i < 3; i++) { TOSAIC_REGION_BEGIN(); five(); five(); TOSAIC_REGION_END(); }
            return 0;
        }""")
    runs = [[cost.instructions for cost in qemu.run(elf, {}).costs] for _ in range(2)]
    assert runs == [[12, 12, 12]] * 2  # each call is a `bl` and five instructions


def test_a_fault_names_the_function_and_the_cause(qemu, build):
    elf = build("""
        __attribute__((noinline)) void bad_store(void) { *(volatile int *)0xf0000000 = 1; }
        int main(void) { bad_store(); return 0; }""")
    with pytest.raises(SimulatorError, match=r"faulted in `bad_store\+0x\w+`: .*no memory answers"):
        qemu.run(elf, {}).check("the guest")


def test_an_undefined_instruction_is_a_fault(qemu, build):
    with pytest.raises(SimulatorError, match=r"faulted in `main\+0x\w+`: the core does not have this instruction"):
        qemu.run(build("int main(void) { __builtin_trap(); }"), {}).check("the guest")


def test_a_guest_that_hangs_times_out(qemu, build):
    execution = qemu.run(build("int main(void) { for (;;); }"), {}, timeout=1)
    assert execution.timed_out and execution.failure == "it did not end within 1 s"


def test_the_guest_ends_when_its_starter_is_killed(qemu, build, tmp_path):
    elf = build("int main(void) { for (;;); }")
    (tmp_path / "qemu").write_bytes(pickle.dumps(qemu))
    code = f"import pickle; from pathlib import Path; p = Path({str(tmp_path)!r}); " \
           f"pickle.loads((p / 'qemu').read_bytes()).run(Path({str(elf)!r}), {{}})"  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", code]) as starter:
        guest = wait_for(lambda: running(elf))
        starter.kill()
    assert guest and wait_for(lambda: not running(elf))


def running(elf: Path) -> bool:
    """Whether a QEMU runs `elf`."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command, status = (folder / "cmdline").read_bytes(), (folder / "stat").read_text()
            state = status.rpartition(")")[2].split()[0]
            if command.startswith(b"/usr/bin/qemu") and str(elf).encode() in command and state != "Z":
                return True
    return False


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether `condition` becomes true in time."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def test_a_region_over_its_limit_ends_the_run_and_keeps_the_regions_before(qemu, build):
    elf = build("""
        int main(void) {
            TOSAIC_REGION_BEGIN(); TOSAIC_REGION_END();
            TOSAIC_REGION_BEGIN(); for (;;) __asm__ volatile("nop"); TOSAIC_REGION_END();
        }""")
    execution = qemu.run(elf, {}, region_limit=10_000)
    assert execution.timed_out and len(execution.costs) == 1
    assert execution.failure == "region 1 executed more than 10000 instructions"


def test_a_guest_writes_in_its_folder_alone(qemu, build, tmp_path):
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    escape = tmp_path / "escaped"
    elf = build(f"""
        int main(void) {{ return host_open("{escape}", HOST_WRITE) < 0 && host_open("inside", HOST_WRITE) >= 0; }}""")
    execution = qemu.run(elf, {})
    assert execution.exit_code == 1 and not escape.exists() and execution.files == {"inside": b""}


def test_missing_qemu_says_how_to_get_it(qemu, build, monkeypatch):
    elf = build("int main(void) { return 0; }")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        BackendError, match=r"`qemu-system-arm` are not installed\n  try: apt-get install .* qemu-system-arm"
    ):
        qemu.run(elf, {}).check("the guest")


def test_a_link_error_carries_the_linkers_words(qemu, build):
    with pytest.raises(BackendError, match="undefined symbol: missing"):
        build("int missing(void); int main(void) { return missing(); }")


def test_markers_are_seen_wherever_they_lie_in_a_page(qemu, build):
    places = range(1000, 1030, 2)
    functions = "\n".join(
        f"__attribute__((noinline, aligned(1024))) void at_{place}(void) {{"
        f'    __asm__ volatile("b.w 1f\\n .rept {place // 2}\\n nop\\n .endr\\n 1:");'
        "    TOSAIC_REGION_BEGIN(); TOSAIC_REGION_END(); }"
        for place in places
    )
    calls = " ".join(f"at_{place}();" for place in places)
    execution = qemu.run(build(f"{functions}\nint main(void) {{ {calls} return 0; }}"), {})
    assert [cost.instructions for cost in execution.costs] == [0] * len(places)


def test_no_cycles_where_the_core_has_no_cycle_model(qemu, build):
    plain = replace(qemu, core=replace(qemu.core, pipeline=None))
    (cost,) = plain.run(
        build('int main(void) { __asm__ volatile("mov r9, r9\\n nop\\n mov r10, r10"); return 0; }'), {}
    ).costs
    assert cost == Cost(1, None)
