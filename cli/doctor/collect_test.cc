#include "collect.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "reset_log.h"
#include "view.h"

namespace sluice::cli::doctor {
namespace {

// A tree of files in place of the machine's.
class CollectTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/sluice-doctor-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    root_ = folder;
    roots_ = roots_at(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
  Roots roots_;
};

TEST_F(CollectTest, NothingThereIsNothingKnown) {
  const HostFacts host = collect_host(roots_);
  EXPECT_TRUE(host.online_cpus.empty());
  EXPECT_TRUE(host.allowed_cpus.empty());
  EXPECT_FALSE(host.shm_total_bytes);
  EXPECT_FALSE(host.cgroup.cpu_cores);
  EXPECT_FALSE(host.cgroup.memory_limit_bytes);
  EXPECT_FALSE(host.mps);
}

TEST_F(CollectTest, ProcessorsAndMps) {
  put("/sys/devices/system/cpu/online", "0-3,6\n");
  put("/proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t1,2-3\nMems_allowed:\t1\n");
  put("/proc/17/comm", "python\n");
  put("/proc/42/comm", "nvidia-cuda-mps\n");
  const HostFacts host = collect_host(roots_);
  EXPECT_EQ(host.online_cpus, (std::set<int>{0, 1, 2, 3, 6}));
  EXPECT_EQ(host.allowed_cpus, (std::set<int>{1, 2, 3}));
  ASSERT_TRUE(host.mps);
  EXPECT_EQ(host.mps->pid, 42);
}

TEST_F(CollectTest, TheTightestGroupOnTheWayUpCounts) {
  put("/proc/self/cgroup", "0::/a/b\n");
  for (const char* folder : {"/sys/fs/cgroup", "/sys/fs/cgroup/a", "/sys/fs/cgroup/a/b"})
    put(std::string(folder) + "/cgroup.procs", "");
  put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  put("/sys/fs/cgroup/a/cpu.stat", "usage_usec 5\nnr_periods 200\nnr_throttled 30\n");
  put("/sys/fs/cgroup/a/b/memory.max", "2000\n");
  put("/sys/fs/cgroup/a/b/memory.current", "1900\n");
  put("/sys/fs/cgroup/a/b/memory.stat", "anon 100\ninactive_file 1500\n");
  put("/sys/fs/cgroup/a/memory.max", "3000\n");
  const CgroupFacts group = collect_cgroup(roots_);
  EXPECT_EQ(group.cpu_cores, 1.5);
  EXPECT_EQ(group.periods, 200u);
  EXPECT_EQ(group.throttled_periods, 30u);
  EXPECT_EQ(group.memory_limit_bytes, 2000u);
  EXPECT_EQ(group.memory_used_bytes, 400u);
}

TEST_F(CollectTest, VersionOneInAContainerWhosePathIsTheHosts) {
  put("/proc/self/cgroup", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/docker/x\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  CgroupFacts group = collect_cgroup(roots_);
  EXPECT_EQ(group.cpu_cores, 4.0);
  EXPECT_FALSE(group.memory_limit_bytes);
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n");
  group = collect_cgroup(roots_);
  EXPECT_FALSE(group.cpu_cores);
  EXPECT_EQ(group.memory_limit_bytes, 1048576u);
  EXPECT_EQ(group.memory_used_bytes, 4096u);
}

TEST_F(CollectTest, TheDriversOwnFiles) {
  put("/proc/driver/nvidia/version",
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\nGCC version:  gcc 12.2.0\n");
  put("/proc/driver/nvidia/params", "RmLogonRC: 1\nRmProfilingAdminOnly: 1\n");
  setenv("SLUICE_DRIVER", "/nonexistent/libcuda.so.1", 1);
  setenv("SLUICE_NVML", "/nonexistent/libnvidia-ml.so.1", 1);
  std::shared_ptr<health::Nvml> nvml;
  const DriverFacts driver = collect_driver(find_installation(), roots_, &nvml);
  unsetenv("SLUICE_DRIVER");
  unsetenv("SLUICE_NVML");
  EXPECT_EQ(driver.module_version, "580.95.05");
  EXPECT_EQ(driver.counters_for_root_only, true);
  EXPECT_EQ(driver.cuda_library, "");
  EXPECT_FALSE(driver.cuda_error.empty());
  EXPECT_FALSE(driver.nvml_error.empty());
  EXPECT_EQ(nvml, nullptr);
}

TEST_F(CollectTest, SharedMemory) {
  roots_.space = [&](const std::string& path) -> std::optional<Roots::Space> {
    EXPECT_EQ(path, root_ + "/dev/shm");
    return Roots::Space{64, 16};
  };
  const HostFacts host = collect_host(roots_);
  EXPECT_EQ(host.shm_total_bytes, 64u);
  EXPECT_EQ(host.shm_free_bytes, 16u);
}

TEST(ParseCpus, NonsenseIsLeftOut) {
  EXPECT_EQ(parse_cpus("3,x,5-6,9-,-2,8-7"), (std::set<int>{3, 5, 6}));
  EXPECT_TRUE(parse_cpus("0-99999999").empty());
}

TEST(Wrapped, BreaksAtBlanks) {
  EXPECT_EQ(wrapped("aa bb cc", 2, 2, 7), "aa bb\n  cc");
  EXPECT_EQ(wrapped("aaaaaaaaaa b", 0, 0, 4), "aaaaaaaaaa\nb");
  EXPECT_EQ(wrapped("", 0, 0, 4), "");
}

TEST_F(CollectTest, RecordsAreAddedAndPrivate) {
  const std::string state = root_ + "/var/state/sluice";
  setenv("SLUICE_STATE_DIR", state.c_str(), 1);
  for (int i = 0; i < 2; ++i) {
    Result<ResetLog> log = ResetLog::open();
    ASSERT_TRUE(log.ok()) << log.status().message();
    ASSERT_TRUE(log->append({{"event", "reset"}, {"number", i}}).ok());
  }
  std::ifstream file(state + "/ecc-resets.jsonl");
  int number = 0;
  for (std::string line; std::getline(file, line); ++number) {
    const nlohmann::json entry = nlohmann::json::parse(line);
    EXPECT_EQ(entry["number"], number);
    EXPECT_TRUE(entry.contains("time") && entry.contains("user"));
  }
  EXPECT_EQ(number, 2);
  struct stat info;
  ASSERT_EQ(stat((state + "/ecc-resets.jsonl").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);

  // Somebody else could have put what is there.
  chmod(state.c_str(), 0777);
  EXPECT_EQ(ResetLog::open().status().code(), Code::kPermissionDenied);
  chmod(state.c_str(), 0700);
  std::filesystem::rename(state + "/ecc-resets.jsonl", state + "/other");
  std::filesystem::create_symlink(state + "/other", state + "/ecc-resets.jsonl");
  EXPECT_EQ(ResetLog::open().status().code(), Code::kPermissionDenied);
  setenv("SLUICE_STATE_DIR", "relative", 1);
  EXPECT_EQ(ResetLog::open().status().code(), Code::kFailedPrecondition);
  unsetenv("SLUICE_STATE_DIR");
}

}  // namespace
}  // namespace sluice::cli::doctor
