// The findings that there can be, and what to do about each.
#include "judge.h"

namespace sluice::cli::doctor {

const std::vector<FindingKind>& finding_kinds() {
  static const std::vector<FindingKind> kinds = {
      // The driver.
      {"driver-missing",
       "Install NVIDIA's driver, or give the container the GPU (docker run --gpus all). Check: nvidia-smi lists it."},
      {"driver-mismatch",
       "The driver was updated under a running system: restart it, or reload the nvidia modules. Check: nvidia-smi."},
      {"driver-old",
       "Install driver 515 or newer: below it the jobs run without Sluice's gates. Check: nvidia-smi shows the "
       "version."},
      {"no-card", "See whether the system has one: lspci -d 10de:, and dmesg for what the driver said."},
      {"device-denied",
       "Give your user these files: join the group that owns them. Check: ls -l /dev/nvidia*, then sluice doctor."},
      {"nvml-denied", "As root these are told too: sudo sluice doctor."},
      // A card on its bus.
      {"card-lost",
       "Its programs fail until the machine is restarted; look for Xid in dmesg. If it comes back: power supply, "
       "cables, cooling, then the card itself."},
      {"pcie-width",
       "Reseat the card, clean its contacts, try another slot; a second card may take its lanes. Check: sluice "
       "doctor."},
      {"pcie-generation",
       "Look into the firmware's settings of the slot, and at a riser cable if there is one. Check: sluice doctor "
       "while "
       "the GPU works."},
      {"pcie-slot", "Another slot of the board may have more; the manual says which. Check: sluice doctor."},
      {"numa-away",
       "Bind the job to the card's node: numactl --cpunodebind NODE --membind NODE. Check: nvidia-smi topo -m."},
      // Clocks, heat, power.
      {"throttle-hardware",
       "Too hot or too little power: check fans, dust, air flow and the power cables. Check: nvidia-smi -q -d "
       "PERFORMANCE under load."},
      {"throttle-heat",
       "Better cooling, or a lower power limit, makes it steady. Check: nvidia-smi -q -d TEMPERATURE."},
      {"throttle-power",
       "Normal at full load. If the limit below its default is not meant so: nvidia-smi -pl WATTS (root)."},
      {"throttled-before", "It was slower at times: look again under the load that matters (sluice top)."},
      {"clocks-set",
       "If nobody meant it: nvidia-smi -rgc and -rac (root) take it back. Check: nvidia-smi -q -d CLOCK."},
      {"temperature", "Check fans, dust and air flow before the clocks fall. Check: sluice top under load."},
      {"power-cap",
       "If nobody meant it: nvidia-smi -pl WATTS (root) sets it back to its default. Check: nvidia-smi -q -d POWER."},
      // Memory errors.
      {"ecc-uncorrected",
       "Results since the driver was loaded may be wrong: repeat them, and reset the GPU (nvidia-smi -r). If it "
       "happens "
       "again, have the card replaced."},
      {"ecc-corrected", "Nothing was wrong yet. Watch whether it grows: sluice doctor ecc shows the counts."},
      {"ecc-history", "These are old. Watch whether it grows: sluice doctor ecc shows the counts."},
      {"ecc-off",
       "For results that must be right: nvidia-smi -e 1 (root), then restart. It costs some memory or speed."},
      {"ecc-pending", "Restart the machine, or reset the GPU (nvidia-smi -r), for it to take effect."},
      {"row-remap-failed", "Stop using the card and have it replaced: its memory has no spare rows left."},
      {"row-remap-pending", "Reset the GPU when no job runs: nvidia-smi -r, or a restart. Check: sluice doctor."},
      {"rows-remapped", "The card repaired itself. Watch whether it grows: nvidia-smi -q -d ROW_REMAPPER."},
      {"pages-pending", "Restart the machine when no job runs. Check: nvidia-smi -q -d PAGE_RETIREMENT."},
      {"pages-retired", "The card repaired itself. Watch whether it grows: nvidia-smi -q -d PAGE_RETIREMENT."},
      // How a card may be used, and by whom.
      {"persistence-off",
       "The driver starts the card anew for each first program: seconds. nvidia-smi -pm 1, or the service "
       "nvidia-persistenced (root)."},
      {"compute-mode", "Only one program, or none, gets a context: nvidia-smi -c DEFAULT (root). Check: nvidia-smi."},
      {"mig-on", "Sluice was not tried with MIG. nvidia-smi -mig 0 (root) turns it off."},
      {"mps-running",
       "Its clients run at the same time; sluice run --mps makes a job one of them. To end it: echo quit | "
       "nvidia-cuda-mps-control, as its user."},
      {"memory-held", "End what is not needed. Check: sluice ps, nvidia-smi."},
      {"memory-unseen",
       "Programs in other containers are not visible from here; look from the host: nvidia-smi, sudo fuser -v "
       "/dev/nvidia*."},
      {"counters-restricted",
       "Profilers cannot read hardware counters as this user. Root may allow it: options nvidia "
       "NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d. Sluice needs none."},
      // The machine.
      {"shm-small",
       "Loaders with worker processes fail or crawl: docker run --shm-size 8g (or --ipc host). Check: df -h /dev/shm."},
      {"shm-full", "Remove what dead programs left there: ls -l /dev/shm. Check: df -h /dev/shm."},
      {"cpu-limit", "Give the container or service more processors (docker run --cpus), or its loader fewer workers."},
      {"cpu-throttled",
       "The group used up its processor time and waited: more processors (docker run --cpus), or fewer threads. Check: "
       "nr_throttled in the group's cpu.stat stands still."},
      {"cpu-affinity", "Widen it (taskset, cpuset, srun --cpus-per-task). Check: taskset -cp $$, nproc."},
      {"memory-limit", "A larger limit (docker run --memory), or fewer or smaller loaders. Check: sluice doctor."},
      // Sluice itself.
      {"runtime-directory", "Mend it, or set SLUICE_RUNTIME_DIR to a directory of yours (mode 0700) on a tmpfs."},
      {"shim-missing", "Install or build Sluice as a whole: without the shim no job is managed. Check: sluice doctor."},
      {"daemon-missing", "sluice ps starts it again; until then turns and minimum shares stand still."},
      {"daemon-silent", "Look into sluiced.log in the runtime directory. Check: sluice ps."},
      {"daemon-version", "When no job runs, end it, so that the next run starts the new one. Check: sluice ps --json."},
      {"board-unusable", "End the jobs of the other version, then delete the file. Until then jobs run unmanaged."},
  };
  return kinds;
}

}  // namespace sluice::cli::doctor
