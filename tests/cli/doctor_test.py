"""sluice doctor, with machines that the fake NVML plays and files in place of the kernel's."""
import json
import os
import pathlib
import pty
import stat
import subprocess

import support
from support import BUILD, CliTest

SERIES = pathlib.Path(__file__).resolve().parents[2] / "health" / "series"


class DoctorTest(CliTest):
    def setUp(self):
        super().setUp()
        self.env["SLUICE_NVML"] = str(BUILD / "tests" / "libfake_nvml.so")
        self.root = os.path.join(self.folder, "root")
        self.put("proc/self/status", "Cpus_allowed_list:\t0-7\n", before="Name:\tsh\n")
        self.put("sys/devices/system/cpu/online", "0-7\n")
        self.put("proc/self/cgroup", "0::/\n")

    def put(self, path, text, before=""):
        file = pathlib.Path(self.root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(before + text, encoding="utf-8")

    def play(self, name, **changes):
        """What the fake plays: one of health/series, with lines of the card changed."""
        text = (SERIES / f"{name}.toml").read_text(encoding="utf-8")
        for key, value in changes.items():
            lines = [f"{key} = {value}" if line.split(" =")[0] == key else line for line in text.split("\n")]
            self.assertNotEqual(text, "\n".join(lines), key)
            text = "\n".join(lines)
        self.env["SLUICE_FAKE_NVML"] = self.write("machine.toml", text)

    def doctor(self, *args, code):
        done = self.call("doctor", "--root", self.root, *args)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def findings(self, code):
        result = json.loads(self.doctor("--json", code=code))
        for finding in result["findings"]:
            self.assertLessEqual({"id", "severity", "evidence", "advice", "gpu", "device", "values"}, finding.keys())
            self.assertTrue(finding["evidence"] and finding["advice"], finding)
        return [(finding["severity"], finding["id"]) for finding in result["findings"]], result


class Machines(DoctorTest):
    def test_healthy_cards_have_no_findings(self):
        for name in ("h200", "geforce"):
            self.play(name)
            found, result = self.findings(0)
            self.assertEqual(found, [])
            self.assertEqual(result["host"]["online_cpus"], 8)
            self.assertTrue(self.doctor(code=0).endswith("\nnothing found\n"))

    def test_a_geforce_has_no_ecc_which_is_not_zero_errors(self):
        self.play("geforce")
        card = self.findings(0)[1]["devices"][0]
        self.assertIsNone(card["ecc"])
        self.assertEqual(card["ecc_volatile"], {"corrected": None, "uncorrected": None})
        self.assertIn("ECC", card["not_available"])
        text = self.doctor(code=0)
        self.assertIn("GPU 0 does not tell: throttle counters, ECC", text)
        self.assertIn("N/A", text)

    def test_no_driver(self):
        self.env["SLUICE_DRIVER"] = "/nonexistent/libcuda.so.1"
        self.play("h200")
        self.assertEqual(self.findings(3)[0], [("critical", "driver-missing")])

    def test_no_nvml(self):
        self.env["SLUICE_NVML"] = "/nonexistent/libnvidia-ml.so.1"
        self.assertEqual(self.findings(3)[0], [("critical", "driver-missing")])
        self.assertIn("/nonexistent/libnvidia-ml.so.1", self.doctor(code=3))

    def test_nvml_without_a_driver_and_of_another_driver(self):
        self.play("no_driver")
        self.assertEqual(self.findings(3)[0], [("critical", "driver-missing")])
        self.play("mismatch")
        self.assertEqual(self.findings(3)[0], [("critical", "driver-mismatch")])

    def test_the_emulator_is_examined_only_when_it_is_asked_for(self):
        del self.env["SLUICE_NVML"]
        self.assertIn("; simulated", self.doctor(code=0))
        self.assertTrue(self.findings(0)[1]["devices"][0]["simulated"])

    def test_without_permission_the_rest_is_told(self):
        self.play("no_permission")
        found, result = self.findings(0)
        self.assertEqual(found, [("note", "nvml-denied")])
        self.assertIn("nvmlDeviceGetPowerUsage", result["findings"][0]["evidence"])
        self.assertEqual(result["devices"][0]["temperature_c"], 67)
        self.assertIsNone(result["devices"][0]["power_w"])

    def test_lost_cards(self):
        self.play("lost_at_3")
        self.env["SLUICE_FAKE_NVML_STEP"] = "3"
        found, result = self.findings(1)
        self.assertEqual(found, [("critical", "card-lost")])
        self.assertTrue(result["devices"][0]["lost"])
        self.play("three_cards")  # the third was lost before anybody saw it
        found, result = self.findings(1)
        self.assertEqual(found, [("critical", "card-lost")])
        self.assertEqual(result["findings"][0]["gpu"], 2)

    def test_worst_first(self):
        self.play("ecc_errors", PersistenceMode=0)
        self.assertEqual(self.findings(1)[0], [
            ("critical", "ecc-uncorrected"), ("warning", "row-remap-pending"), ("note", "ecc-corrected"),
            ("note", "rows-remapped"), ("note", "persistence-off")])

    def test_the_kernels_files(self):
        self.play("h200", CurrPcieLinkWidth=4)
        self.put("proc/self/status", "Cpus_allowed_list:\t2\n", before="Name:\tsh\n")
        self.put("sys/fs/cgroup/cpu.max", "300000 100000\n")
        self.put("proc/71/comm", "nvidia-cuda-mps\n")
        self.put("sys/bus/pci/devices/0000:1b:00.0/numa_node", "1\n")
        self.put("sys/bus/pci/devices/0000:1b:00.0/local_cpulist", "4-7\n")
        self.assertEqual(self.findings(1)[0], [
            ("warning", "cpu-affinity"), ("warning", "pcie-width"), ("warning", "numa-away"),
            ("note", "mps-running"), ("note", "cpu-limit")])

    def test_memory_is_held_by_somebody_with_a_name(self):
        self.play("geforce", UtilizationRates=0, ComputeRunningProcesses=f"[[{os.getpid()}, 1073741824]]")
        self.put(f"proc/{os.getpid()}/comm", "\x1b[31mtrain\n")
        found, result = self.findings(0)
        self.assertEqual(found, [("note", "memory-held")])
        self.assertIn(str(os.getpid()), result["findings"][0]["evidence"])
        text = self.doctor(code=0)
        self.assertIn("?[31mtrain", text)
        self.assertNotIn("\x1b", text)

    def test_a_board_of_another_version(self):
        self.play("h200")
        with open(os.path.join(self.runtime, "GPU-x.board"), "wb") as file:
            file.write(b"SLBD" + (99).to_bytes(4, "little") + bytes(4096))
        os.chmod(file.name, 0o600)
        self.assertEqual(self.findings(1)[0], [("warning", "board-unusable")])


class Output(DoctorTest):
    def test_eighty_columns_and_no_colours_in_a_pipe(self):
        self.play("ecc_errors", PersistenceMode=0, CurrPcieLinkWidth=4)
        text = self.doctor(code=1)
        self.assertNotIn("\033", text)
        self.assertEqual([line for line in text.split("\n") if len(line) > 80], [])

    def test_colours_on_a_terminal_unless_they_are_not_wanted(self):
        self.play("ecc_errors")
        for variables, expected in (({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False),
                                    ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
            ours, theirs = pty.openpty()
            env = {name: value for name, value in self.env.items() if name != "NO_COLOR"} | variables
            with subprocess.Popen([self.sluice, "doctor", "--root", self.root], env=env, stdout=theirs,
                                  stdin=subprocess.DEVNULL) as process:
                os.close(theirs)
                text = b""
                try:
                    while piece := os.read(ours, 65536):
                        text += piece
                except OSError:
                    pass  # that is how a terminal ends
                process.wait(support.DEADLINE_S)
            os.close(ours)
            self.assertEqual(b"\033[1;31mcritical" in text, expected, variables)

    def test_bad_usage(self):
        for args in (["x"], ["--jsn"], ["ecc", "x"], ["ecc", "--rset"]):
            done = self.call("doctor", *args)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assert_one_line(done.stderr)

    def test_completion(self):
        self.assertIn("ecc\t", self.call("__complete", "doctor", "").stdout)
        self.assertIn("--reset\t", self.call("__complete", "doctor", "ecc", "--").stdout)
        self.assertNotIn("--reset", self.call("__complete", "doctor", "--").stdout)


class Ecc(DoctorTest):
    def setUp(self):
        super().setUp()
        self.state = os.path.join(self.folder, "state")
        self.env["SLUICE_STATE_DIR"] = self.state

    def records(self):
        with open(os.path.join(self.state, "ecc-resets.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def test_shows_and_changes_nothing(self):
        self.play("ecc_errors")
        done = self.call("doctor", "ecc", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        card = json.loads(done.stdout)["devices"][0]
        self.assertEqual(card["volatile"], {"corrected": 17, "uncorrected": 2})
        self.assertEqual(card["aggregate"], {"corrected": 40, "uncorrected": 5})
        self.assertFalse(os.path.exists(self.state))

    def test_records_before_it_resets(self):
        self.play("ecc_errors")
        done = self.call("doctor", "ecc", "--reset", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertTrue(result["devices"][0]["reset"])
        [record] = self.records()
        self.assertEqual((record["event"], record["volatile"]), ("reset", {"corrected": 17, "uncorrected": 2}))
        self.assertEqual(stat.S_IMODE(os.stat(result["record"]).st_mode), 0o600)

    def test_without_permission(self):
        self.play("h200")
        done = self.call("doctor", "ecc", "--reset")
        self.assertEqual(done.returncode, 1)
        self.assert_one_line(done.stderr)
        self.assertIn("only root may set its counts back", done.stderr)
        self.assertEqual([record["event"] for record in self.records()], ["reset", "failed"])

    def test_what_cannot_be_recorded_is_not_reset(self):
        self.play("ecc_errors")
        os.mkdir(self.state)
        os.chmod(self.state, 0o777)
        done = self.call("doctor", "ecc", "--reset")
        self.assertEqual(done.returncode, 1)
        self.assertIn("must be your own", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_a_card_without_ecc(self):
        self.play("geforce")
        done = self.call("doctor", "ecc", "--reset")
        self.assertEqual(done.returncode, 1)
        self.assertIn("its ECC is not available", done.stderr)
        done = self.call("doctor", "ecc", "--gpu", "7")
        self.assertEqual(done.returncode, 3)
        self.assertIn("no GPU '7' answers here", done.stderr)


class Bandwidth(DoctorTest):
    """On the emulated card; its figures say nothing about a real one."""

    def measure(self, *args, code=0):
        done = self.call("doctor", "bandwidth", "--repeats", "2", *args)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def rows(self, *args):
        done = self.measure("--json", *args)
        return json.loads(done.stdout), done.stderr

    def test_every_road_has_a_row(self):
        del self.env["SLUICE_NVML"]
        result, said = self.rows()
        self.assertEqual(said, "")
        self.assertTrue(result["simulated"])
        self.assertEqual([row["name"] for row in result["rows"]],
                         ["host_to_device_pinned", "host_to_device_pageable", "device_to_host_pinned",
                          "device_to_host_pageable", "read", "write", "copy", "copy_by_driver"])
        card = result["devices"][0]
        self.assertEqual(result["peak_bytes_per_s"], 2 * card["memory_clock_khz"] * 1000 * card["bus_bits"] / 8)
        self.assertGreaterEqual(card["buffer_bytes"], 8 * card["l2_bytes"])
        for row in result["rows"]:
            self.assertEqual(len(row["rates_bytes_per_s"]), 2, row)
            if row["name"] in ("read", "write", "copy", "copy_by_driver"):
                self.assertLessEqual(row["ratio"], 1.01, row)

    def test_several_cards_are_measured_in_pairs_and_together(self):
        self.env["SLUICE_EMU_GPUS"] = "2"
        result, _ = self.rows()
        pairs = [(row["gpu"], row["peer"]) for row in result["rows"] if row["name"].startswith("peer")]
        self.assertEqual(pairs, [(0, 1), (1, 0)])
        by_name = {(row["name"], row["gpu"]): row["bytes_per_s"] for row in result["rows"] if row["peer"] is None}
        self.assertGreater(by_name["all_read", None], by_name["read", 0])
        self.assertEqual({row["gpu"] for row in self.rows("--gpu", "1")[0]["rows"]}, {1})

    def test_throttled_samples_are_thrown_away_and_counted(self):
        uuid = self.rows()[0]["devices"][0]["uuid"]
        self.play("h200", UUID=f'"{uuid}"', CurrentClocksEventReasons="0x44")
        done = self.measure("--json", code=1)
        result = json.loads(done.stdout)
        self.assertEqual(result["throttled"], ["power cap", "heat (hardware)"])
        for row in result["rows"]:
            self.assertEqual((row["samples"], row["thrown_away"], row["bytes_per_s"]), (0, 4, None))
        self.assertIn("32 of 32 samples were thrown away", self.measure(code=1).stdout)
        self.play("h200", UUID=f'"{uuid}"', CurrentClocksEventReasons="0x1")
        result, said = self.rows()
        self.assertTrue(result["throttle_known"])
        self.assertEqual({row["thrown_away"] for row in result["rows"]}, {0})
        self.assertIsNotNone(result["rows"][0]["ratio"])  # of the link that this NVML tells of

    def test_what_cannot_be_measured_is_said_in_a_line(self):
        for args, code, words in ((["--size", "1KiB"], 2, "--size: L2 has"), (["--size", "much"], 2, "no size"),
                                  (["--size", "1TiB"], 1, "are free"), (["--gpu", "7"], 3, "no GPU '7'"),
                                  (["--repeats", "0"], 2, "--repeats")):
            done = self.measure(*args, code=code) if "--repeats" not in args else self.call("doctor", "bandwidth", *args)
            self.assertEqual(done.returncode, code)
            self.assert_one_line(done.stderr)
            self.assertIn(words, done.stderr)
        self.env["SLUICE_DRIVER"] = "/nonexistent/libcuda.so.1"
        self.assert_one_line(self.measure(code=3).stderr)


if __name__ == "__main__":
    support.main()
