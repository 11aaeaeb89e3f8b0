// The emulated machine between processes. The children are this very program, started anew: a process that has
// initialised the driver cannot use it after fork.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "driver_test.h"
#include "sluice/base/clock.h"

extern char** environ;

namespace {

using sluice::emulator::testing::kPtx;
using sluice::emulator::testing::launch_spin;
using sluice::emulator::testing::remove_machine;
using sluice::emulator::testing::use_own_machine;

// A child that plays `role`, with pipes to its standard input and output.
class Child {
 public:
  explicit Child(const std::string& role) {
    int to[2], from[2];
    EXPECT_EQ(pipe2(to, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(from, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    const std::string argument = "--role=" + role;
    char* const argv[] = {const_cast<char*>("emulator_processes_test"), const_cast<char*>(argument.c_str()), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    in_ = to[1];
    out_ = fdopen(from[0], "r");
  }
  ~Child() {
    if (pid_ > 0) signal_and_wait(SIGKILL);
    close(in_);
    fclose(out_);
  }
  std::string line() {
    char text[256] = {};
    if (fgets(text, sizeof text, out_) == nullptr) return "(end)";
    text[strcspn(text, "\n")] = '\0';
    return text;
  }
  void say(const std::string& text) const {
    EXPECT_EQ(write(in_, (text + "\n").c_str(), text.size() + 1), static_cast<ssize_t>(text.size() + 1));
  }
  int wait() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    return status;
  }
  int signal_and_wait(int number) {
    kill(pid_, number);
    return wait();
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int in_ = -1;
  FILE* out_ = nullptr;
};

class ProcessesTest : public testing::Test {
 protected:
  // One for all: this process can be on one machine only.
  static void SetUpTestSuite() { directory_ = use_own_machine(); }
  static void TearDownTestSuite() { remove_machine(directory_); }
  static inline std::string directory_;
};

// ---- what the children do -------------------------------------------------------------------------------------

struct Driver {
  Driver() {
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuCtxCreate(&context, nullptr, 0, 0));
    EXPECT_OK(cuModuleLoadData(&module, kPtx));
    EXPECT_OK(cuModuleGetFunction(&spin, module, "spin_ns"));
  }
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
};

void answer(const std::string& text) {
  std::puts(text.c_str());
  std::fflush(stdout);
}
std::string next_line() {
  char text[256] = {};
  if (fgets(text, sizeof text, stdin) == nullptr) return "";
  text[strcspn(text, "\n")] = '\0';
  return text;
}

// Keeps its queue full from "go" until "stop", then says how many kernels of 100 us got done.
int busy() {
  Driver driver;
  CUevent events[4];
  for (CUevent& event : events) EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  answer("ready");
  next_line();
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    next_line();
    stop = true;
  });
  long done = 0;
  for (long i = 0; !stop; ++i) {
    CUevent event = events[i % 4];
    if (i >= 4) {
      EXPECT_OK(cuEventSynchronize(event));
      if (!stop) done += 5;
    }
    for (int k = 0; k < 5; ++k) launch_spin(driver.spin, 100'000, nullptr);
    EXPECT_OK(cuEventRecord(event, nullptr));
  }
  reader.join();
  answer(std::to_string(done));
  return 0;
}

int hold_memory() {
  Driver driver;
  CUdeviceptr p = 0;
  EXPECT_OK(cuMemAlloc(&p, 4ull << 30));
  answer("ready");
  next_line();
  return 0;
}

// Says its event's handle, records it behind a kernel on "record", and leaves on "leave".
int event_owner() {
  Driver driver;
  CUevent event = nullptr;
  CUipcEventHandle handle;
  EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  EXPECT_OK(cuIpcGetEventHandle(&handle, event));
  void* word = nullptr;
  EXPECT_OK(cuMemHostAlloc(&word, 8, CU_MEMHOSTALLOC_DEVICEMAP));
  auto* gate = new (word) std::atomic<std::uint64_t>(1);
  EXPECT_OK(cuStreamWaitValue64(nullptr, reinterpret_cast<CUdeviceptr>(word), 0, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_OK(cuEventRecord(event, nullptr));
  std::string text;
  for (unsigned char byte : handle.reserved) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%02x", byte);
    text += hex;
  }
  answer(text);
  next_line();
  gate->store(0);
  next_line();
  return 0;
}

// Exits, one way or another, with a stream parked at a gate that nobody opens.
int exit_parked(bool destructors) {
  Driver driver;
  void* word = nullptr;
  EXPECT_OK(cuMemHostAlloc(&word, 8, CU_MEMHOSTALLOC_DEVICEMAP));
  new (word) std::atomic<std::uint64_t>(1);
  EXPECT_OK(cuStreamWaitValue64(nullptr, reinterpret_cast<CUdeviceptr>(word), 0, CU_STREAM_WAIT_VALUE_EQ));
  launch_spin(driver.spin, 1000, nullptr);
  answer("ready");
  if (destructors) {
    // A destructor of a static that still calls the driver.
    struct Late {
      ~Late() { std::_Exit(cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY ? 7 : 1); }
    };
    static Late late;
    std::exit(0);
  }
  next_line();
  return 0;
}

// Forks after initialising: the child is refused, ends in peace, and the parent goes on.
int forks() {
  Driver driver;
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    CUdeviceptr p = 0;
    const bool refused =
        cuInit(0) == CUDA_ERROR_NOT_INITIALIZED && cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
        cuMemAlloc(&p, 4) == CUDA_ERROR_NOT_INITIALIZED && cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED;
#ifdef SLUICE_SANITIZED
    _exit(refused ? 5 : 1);  // the check for leaks waits for locks that the parent's threads had
#else
    std::exit(refused ? 5 : 1);
#endif
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  launch_spin(driver.spin, 1000, nullptr);
  EXPECT_OK(cuCtxSynchronize());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

// Its image is replaced after initialising: the slot of what it was is free for what it is.
int execs(bool again) {
  Driver driver;
  if (!again) {
    CUdeviceptr p = 0;
    EXPECT_OK(cuMemAlloc(&p, 4ull << 30));
    char* const argv[] = {const_cast<char*>("emulator_processes_test"), const_cast<char*>("--role=execed"), nullptr};
    execv("/proc/self/exe", argv);
    return 1;
  }
  CUdeviceptr p = 0;
  return cuMemAlloc(&p, 4ull << 30) == CUDA_SUCCESS ? 5 : 1;
}

// ---- the tests ------------------------------------------------------------------------------------------------

// Runs the first child alone, or both at once, for a while of wall-clock time; returns kernels done by each.
std::pair<double, double> share(Child& a, Child* b, std::uint64_t ns) {
  a.say("go");
  if (b != nullptr) b->say("go");
  sluice::sleep_ns(ns);
  a.say("stop");
  if (b != nullptr) b->say("stop");
  const double first = std::stod(a.line());
  return {first, b != nullptr ? std::stod(b->line()) : 0};
}

TEST_F(ProcessesTest, TwoBusyProcessesShareEqually) {
  setenv("SLUICE_EMU_SCALE", "5", 1);
  double alone = 0;
  {
    Child a("busy");
    ASSERT_EQ(a.line(), "ready");
    alone = share(a, nullptr, 500'000'000).first;
  }
  Child a("busy"), b("busy");
  ASSERT_EQ(a.line(), "ready");
  ASSERT_EQ(b.line(), "ready");
  const auto [first, second] = share(a, &b, 1'000'000'000);
  unsetenv("SLUICE_EMU_SCALE");
  EXPECT_GT(first / second, 0.8);
  EXPECT_LT(first / second, 1.25);
  // Together they get what one gets alone in the time, up to switches and noise.
  EXPECT_GT((first + second) / (2 * alone), 0.8);
  EXPECT_LT((first + second) / (2 * alone), 1.2);
}

TEST_F(ProcessesTest, StoppedProcessLosesItsTurns) {
  setenv("SLUICE_EMU_SCALE", "5", 1);
  Child a("busy"), b("busy"), c("busy");
  for (Child* child : {&a, &b, &c}) ASSERT_EQ(child->line(), "ready");
  const double alone = share(a, nullptr, 500'000'000).first;
  b.say("go");
  sluice::sleep_ns(50'000'000);
  kill(b.pid(), SIGSTOP);
  const double beside_stopped = share(c, nullptr, 1'500'000'000).first / 3;
  unsetenv("SLUICE_EMU_SCALE");
  kill(b.pid(), SIGCONT);
  EXPECT_GT(beside_stopped / alone, 0.7);
}

TEST_F(ProcessesTest, MemoryIsSharedAndComesBackAfterKill) {
  Child holder("hold_memory");
  ASSERT_EQ(holder.line(), "ready");
  Driver driver;
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc(&p, 4ull << 30), CUDA_ERROR_OUT_OF_MEMORY);
  std::size_t free = 0, total = 0;
  EXPECT_OK(cuMemGetInfo(&free, &total));
  EXPECT_EQ(free, 2ull << 30);
  holder.signal_and_wait(SIGKILL);
  EXPECT_OK(cuMemAlloc(&p, 4ull << 30));
  EXPECT_OK(cuCtxDestroy(driver.context));
}

CUevent open_event(const std::string& text) {
  CUipcEventHandle handle;
  EXPECT_EQ(text.size(), 2 * sizeof handle.reserved);
  for (std::size_t i = 0; i < sizeof handle.reserved; ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  CUevent event = nullptr;
  EXPECT_OK(cuIpcOpenEventHandle(&event, handle));
  return event;
}

TEST_F(ProcessesTest, EventOfAnotherProcess) {
  Child owner("event_owner");
  const std::string handle = owner.line();
  Driver driver;
  const CUevent event = open_event(handle);
  EXPECT_OK(cuStreamWaitEvent(nullptr, event, 0));
  launch_spin(driver.spin, 1000, nullptr);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  owner.say("record");
  EXPECT_OK(cuEventSynchronize(event));
  EXPECT_OK(cuStreamSynchronize(nullptr));
  EXPECT_OK(cuEventDestroy(event));
  EXPECT_OK(cuCtxDestroy(driver.context));
}

TEST_F(ProcessesTest, EventOfADeadProcessHoldsNobody) {
  Child owner("event_owner");
  const std::string handle = owner.line();
  Driver driver;
  const CUevent event = open_event(handle);
  EXPECT_OK(cuStreamWaitEvent(nullptr, event, 0));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  owner.signal_and_wait(SIGKILL);
  EXPECT_OK(cuStreamSynchronize(nullptr));
  EXPECT_OK(cuCtxDestroy(driver.context));
}

TEST_F(ProcessesTest, ExitWithAParkedStream) {
  Child child("exit_parked");
  ASSERT_EQ(child.line(), "ready");
  child.say("leave");
  const int status = child.wait();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(ProcessesTest, ExitWithDestructorsThatCallTheDriver) {
  Child child("exit_late");
  EXPECT_EQ(WEXITSTATUS(child.wait()), 7);
}

TEST_F(ProcessesTest, KillWithAParkedStream) {
  Child child("exit_parked");
  ASSERT_EQ(child.line(), "ready");
  const int status = child.signal_and_wait(SIGTERM);  // the driver's threads take no signals from the program
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST_F(ProcessesTest, ForkedChildIsRefused) { EXPECT_EQ(WEXITSTATUS(Child("forks").wait()), 5); }

TEST_F(ProcessesTest, ExecFreesWhatTheProcessHad) { EXPECT_EQ(WEXITSTATUS(Child("exec").wait()), 5); }

TEST_F(ProcessesTest, VisibleDevices) {
  setenv("SLUICE_EMU_GPUS", "3", 1);
  setenv("CUDA_VISIBLE_DEVICES", "2,0,9,1", 1);  // what follows an invalid one is not visible
  EXPECT_EQ(Child("devices").line(), "2 03 01");
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EQ(Child("devices").line(), "error 100");
  unsetenv("CUDA_VISIBLE_DEVICES");
  const std::string uuids = Child("uuids").line();
  setenv("CUDA_VISIBLE_DEVICES", uuids.substr(0, 12).c_str(), 1);  // the first 8 digits of the second card's
  EXPECT_EQ(Child("devices").line(), "1 02");
  unsetenv("CUDA_VISIBLE_DEVICES");
  unsetenv("SLUICE_EMU_GPUS");
}

TEST_F(ProcessesTest, UnusableDirectoryGivesAMachineOfItsOwn) {
  setenv("SLUICE_RUNTIME_DIR", "/proc/no-such-place", 1);
  Child child("hold_memory");
  EXPECT_EQ(child.line(), "ready");
  setenv("SLUICE_RUNTIME_DIR", directory_.c_str(), 1);
}

TEST_F(ProcessesTest, ManyShortLivesLeaveNothing) {
  for (int i = 0; i < 150; ++i) {  // more than a card has slots
    Child child("exit_parked");
    ASSERT_EQ(child.line(), "ready");
    child.signal_and_wait(SIGKILL);
  }
  EXPECT_EQ(Child("forks").wait(), 5 << 8);
  const std::filesystem::directory_iterator files(directory_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);  // the machine itself
}

int devices() {
  const CUresult result = cuInit(0);
  if (result != CUDA_SUCCESS) {
    answer("error " + std::to_string(result));
    return 0;
  }
  int count = 0;
  EXPECT_OK(cuDeviceGetCount(&count));
  std::string text = std::to_string(count);
  for (int i = 0; i < count; ++i) {
    char bus[20];
    EXPECT_OK(cuDeviceGetPCIBusId(bus, sizeof bus, i));
    text += " " + std::string(bus + 5, 2);
  }
  answer(text);
  return 0;
}

// The second card's UUID.
int uuids() {
  CUuuid uuid;
  EXPECT_OK(cuInit(0));
  EXPECT_OK(cuDeviceGetUuid(&uuid, 1));
  std::string text = "GPU-";
  for (int i = 0; i < 4; ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += hex;
  }
  answer(text);
  return 0;
}

int play(const std::string& role) {
  if (role == "busy") return busy();
  if (role == "hold_memory") return hold_memory();
  if (role == "event_owner") return event_owner();
  if (role == "exit_parked") return exit_parked(false);
  if (role == "exit_late") return exit_parked(true);
  if (role == "forks") return forks();
  if (role == "exec") return execs(false);
  if (role == "execed") return execs(true);
  if (role == "devices") return devices();
  if (role == "uuids") return uuids();
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 2 && std::strncmp(argv[1], "--role=", 7) == 0) return play(argv[1] + 7);
  return RUN_ALL_TESTS();
}
