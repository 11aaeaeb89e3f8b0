// What real CUDA runtimes look up, and every exported name, called through the library under test: each call must reach
// the driver once, with its arguments bit for bit, and return what the driver returned.
//
//   replay_test --over=stub|shim|managed STUB SHIM RECORDING...
//
// stub: the stub driver itself, which shows that the test holds for a library that changes nothing. shim: the shim as
// in a process that nobody manages. managed: the shim in a job that can hold others and be held, so that every wrapper
// is at work.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/process.h"
#include "sluice/board.h"
#include "sluice/cuda_abi.h"
#include "stub_driver.h"

namespace sluice {
namespace {

using cuda_abi::Entry;

struct Library {
  void* handle = nullptr;
  template <class F>
  F function(const char* name) const {
    return reinterpret_cast<F>(dlsym(handle, name));
  }
};

std::string over, stub_path, shim_path;
std::vector<std::string> recordings;
Library driver;  // the stub
Library tested;  // the stub or the shim
board::Board* shared_board = nullptr;
std::string board_directory;  // removed at the end

stub::CallsFunction stub_calls;
stub::ClearFunction stub_clear;
stub::AnswerFunction stub_answer;
stub::AddressFunction stub_address;

// ---- sentinel arguments ----------------------------------------------------------------------------------------

enum class Sentinels {
  kSmall,  // pointers to zeroed memory, handles with all bits in use, small numbers: wrappers may follow and count
  kWide,   // null pointers and handles, numbers with all bits in use: wrappers must not follow or truncate
};

constexpr std::size_t kMaxArguments = std::size(stub::Call{}.arguments);
alignas(64) unsigned char memory[kMaxArguments][16 * 1024];

template <class T>
concept Complete = requires {
  sizeof(T);
};

template <class T>
T sentinel(std::size_t index, Sentinels kind) {
  T value{};
  unsigned char pattern[sizeof(T)];
  for (std::size_t i = 0; i < sizeof(T); ++i) pattern[i] = static_cast<unsigned char>(0x91 + 16 * i + index);
  if constexpr (std::is_enum_v<T>) {
    value = static_cast<T>(1);
  } else if constexpr (std::is_pointer_v<T>) {
    using Target = std::remove_pointer_t<T>;
    if (kind == Sentinels::kWide) return nullptr;
    if constexpr (std::is_void_v<Target>) {
      value = memory[index];
    } else if constexpr (!std::is_function_v<Target> && Complete<Target>) {
      value = reinterpret_cast<T>(memory[index]);
    } else {
      std::memcpy(&value, pattern, sizeof value);  // a handle or a function: nobody but the driver may follow it
    }
  } else if constexpr (std::is_arithmetic_v<T>) {
    if (kind == Sentinels::kSmall) return static_cast<T>(3 + index);
    std::memcpy(&value, pattern, sizeof value);
  } else {
    for (std::size_t i = 0; i < sizeof(T); ++i) pattern[i] &= 1;  // a structure by value: enumerators stay valid
    std::memcpy(&value, pattern, sizeof value);
  }
  return value;
}

struct Outcome {
  CUresult result = CUDA_SUCCESS;
  std::vector<std::string> arguments;  // their bytes

  void keep(const void* argument, std::size_t bytes) {
    arguments.emplace_back(static_cast<const char*>(argument), bytes);
  }
};

template <class F>
struct Invoker;
template <class... Args>
struct Invoker<CUresult(Args...)> {
  static Outcome invoke(void* function, Sentinels kind) {
    std::memset(memory, 0, sizeof memory);
    return with(std::index_sequence_for<Args...>{}, function, kind);
  }
  template <std::size_t... I>
  static Outcome with(std::index_sequence<I...>, void* function, [[maybe_unused]] Sentinels kind) {
    return call(function, sentinel<Args>(I, kind)...);
  }
  static Outcome call(void* function, Args... args) {
    Outcome outcome;
    (outcome.keep(&args, sizeof args), ...);
    outcome.result = reinterpret_cast<CUresult (*)(Args...)>(function)(args...);
    return outcome;
  }
};

using Invoke = Outcome (*)(void*, Sentinels);
struct Callable {
  const char* symbol;
  Invoke invoke;
};
constexpr Callable kCallables[] = {
#define SLUICE_ENTRY(symbol, name, version, flags, cls, params, args) {#symbol, &Invoker<CUresult params>::invoke},
#include "sluice/cuda_abi/entries.inc"
    {stub::kStubFunction, &Invoker<CUresult(int)>::invoke},
    {"cuMemAlloc_newer", &Invoker<CUresult(CUdeviceptr*, std::size_t, std::uint64_t)>::invoke},
};

Invoke invoke_of(const std::string& symbol) {
  for (const Callable& callable : kCallables) {
    if (symbol == callable.symbol) return callable.invoke;
  }
  return nullptr;
}

// Calls of `symbol` that reached the driver from this thread with exactly these arguments.
int times_reached(const std::string& symbol, const Outcome& outcome) {
  const stub::Call* calls = nullptr;
  const std::size_t count = stub_calls(&calls);
  int times = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (symbol != calls[i].symbol || calls[i].count != outcome.arguments.size()) continue;
    bool same = true;
    for (std::size_t a = 0; a < outcome.arguments.size(); ++a) {
      const stub::Argument& argument = calls[i].arguments[a];
      same &= std::string(reinterpret_cast<const char*>(argument.bytes), argument.size) == outcome.arguments[a];
    }
    times += same;
  }
  return times;
}

// `function` has to be as good as the driver's `symbol`.
void expect_equal_to_driver(const std::string& symbol, void* function) {
  SCOPED_TRACE(symbol);
  ASSERT_NE(function, nullptr);
  const Invoke invoke = invoke_of(symbol);
  ASSERT_NE(invoke, nullptr);
  for (Sentinels kind : {Sentinels::kSmall, Sentinels::kWide}) {
    SCOPED_TRACE(kind == Sentinels::kSmall ? "small" : "wide");
    const CUresult refusal = CUDA_ERROR_LAUNCH_TIMEOUT;
    stub_clear();
    stub_answer(symbol.c_str(), refusal);
    Outcome outcome = invoke(function, kind);
    EXPECT_EQ(outcome.result, refusal);
    EXPECT_EQ(times_reached(symbol, outcome), 1);

    stub_clear();
    const CUresult driver_result = invoke(stub_address(symbol.c_str()), kind).result;
    stub_clear();
    outcome = invoke(function, kind);
    EXPECT_EQ(outcome.result, driver_result);
    EXPECT_EQ(times_reached(symbol, outcome), 1);
  }
  stub_clear();
}

// ---- look-ups --------------------------------------------------------------------------------------------------

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t);
using GetProcAddressV2 = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

struct Answer {
  CUresult result;
  void* function;
  int found;
};

// Through cuGetProcAddress_v2, or its first ABI.
Answer ask(const Library& library, const char* name, int version, cuuint64_t flags, bool v2 = true) {
  Answer answer{CUDA_ERROR_UNKNOWN, nullptr, -1};
  if (v2) {
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    answer.result =
        library.function<GetProcAddressV2>("cuGetProcAddress_v2")(name, &answer.function, version, flags, &found);
    answer.found = found;
  } else {
    answer.result = library.function<GetProcAddress>("cuGetProcAddress")(name, &answer.function, version, flags);
  }
  return answer;
}

class Recording : public testing::TestWithParam<std::string> {};

TEST_P(Recording, EveryPointerGivenReachesTheDriver) {
  std::ifstream file(GetParam());
  ASSERT_TRUE(file) << GetParam();
  int looked_up = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::vector<std::string> fields;
    std::istringstream split(line);
    for (std::string field; std::getline(split, field, '\t');) fields.push_back(field);
    SCOPED_TRACE(line);
    if (fields.at(0) == "dlsym") {
      expect_equal_to_driver(fields.at(1), tested.function<void*>(fields.at(1).c_str()));
      continue;
    }
    ASSERT_EQ(fields.size(), 4u);
    const bool v2 = fields[0] == "cuGetProcAddress_v2";
    const int version = std::stoi(fields[2]);
    const cuuint64_t flags = std::stoull(fields[3]);
    const Answer want = ask(driver, fields[1].c_str(), version, flags, v2);
    const Answer have = ask(tested, fields[1].c_str(), version, flags, v2);
    EXPECT_EQ(have.result, want.result);
    EXPECT_EQ(have.found, want.found);
    if (!want.function) {
      EXPECT_EQ(have.function, nullptr);
      continue;
    }
    const Entry* entry = cuda_abi::find(fields[1].c_str(), version, flags);
    ASSERT_NE(entry, nullptr);
    ASSERT_EQ(stub_address(entry->symbol), want.function);
    expect_equal_to_driver(entry->symbol, have.function);
    ++looked_up;
  }
  EXPECT_GT(looked_up, 300);  // an empty recording proves nothing
}

TEST(Exports, EveryNameReachesTheDriver) {
  for (const char* name : cuda_abi::exports()) {
    SCOPED_TRACE(name);
    void* function = tested.function<void*>(name);
    ASSERT_NE(function, nullptr);
    if (cuda_abi::find_symbol(name)) {
      expect_equal_to_driver(name, function);
    } else {  // known by name only: the stub refuses it
      EXPECT_EQ(reinterpret_cast<CUresult (*)()>(function)(), CUDA_ERROR_NOT_SUPPORTED);
    }
  }
}

TEST(LookUp, EveryEntryByItsOwnKey) {
  for (const Entry& e : cuda_abi::entries()) {
    expect_equal_to_driver(e.symbol, ask(tested, e.name, e.version, e.flags).function);
  }
}

TEST(LookUp, TheLookUpFunctionsGivenAreTheSameAsThoseExported) {
  const auto first = reinterpret_cast<GetProcAddress>(ask(tested, "cuGetProcAddress", 11030, 0).function);
  const auto second = reinterpret_cast<GetProcAddressV2>(ask(tested, "cuGetProcAddress", 12000, 0).function);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  void* function = nullptr;
  void* function_v2 = nullptr;
  EXPECT_EQ(first("cuLaunchKernel", &function, 11080, 2), CUDA_SUCCESS);
  EXPECT_EQ(second("cuLaunchKernel", &function_v2, 12000, 2, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(function, ask(tested, "cuLaunchKernel", 13000, 2).function);
  EXPECT_EQ(function_v2, function);
  EXPECT_EQ(function != stub_address("cuLaunchKernel_ptsz"), over == "managed");
}

TEST(LookUp, AnAbiNewerThanTheTableIsTheDriversOwn) {
  EXPECT_EQ(ask(tested, "cuMemAlloc", stub::kStubVersion, 0).function, stub_address("cuMemAlloc_newer"));
  EXPECT_EQ(ask(tested, stub::kStubFunction, stub::kStubVersion, 0).function, stub_address(stub::kStubFunction));
  expect_equal_to_driver(stub::kStubFunction, ask(tested, stub::kStubFunction, stub::kStubVersion, 2).function);
  expect_equal_to_driver("cuMemAlloc_newer", ask(tested, "cuMemAlloc", stub::kStubVersion, 0).function);
}

TEST(LookUp, AnUnchangedAbiAskedForAtANewerVersionIsStillTheTables) {
  for (cuuint64_t flags : {0, 1, 2, 3}) {
    const Answer newer = ask(tested, "cuLaunchKernel", stub::kStubVersion, flags);
    EXPECT_EQ(newer.function, ask(tested, "cuLaunchKernel", cuda_abi::kCudaVersion, flags).function) << flags;
    expect_equal_to_driver(flags & 2 ? "cuLaunchKernel_ptsz" : "cuLaunchKernel", newer.function);
  }
}

TEST(LookUp, WhatTheDriverRefusesIsRefusedAlike) {
  struct Question {
    const char* name;
    int version;
    cuuint64_t flags;
  };
  for (const Question& q : {Question{"cuNoSuchThing", 13000, 0},
                            {"cuNoSuchThing", 13000, 2},
                            {"", 0, 0},
                            {nullptr, 13000, 0},
                            {"cuLaunchKernel", 3000, 0},
                            {"cuLaunchKernel", 4000, 2},
                            {"cuLaunchKernel", 99000, 0},
                            {"cuLaunchKernel", 13000, 4},
                            {"cuMemAlloc_v2", 13000, 0},
                            {"cuLaunchKernel_ptsz", 13000, 2}}) {
    SCOPED_TRACE(q.name ? q.name : "null");
    for (bool v2 : {false, true}) {
      const Answer want = ask(driver, q.name, q.version, q.flags, v2);
      const Answer have = ask(tested, q.name, q.version, q.flags, v2);
      EXPECT_EQ(want.function, nullptr);
      EXPECT_EQ(have.function, nullptr);
      EXPECT_EQ(have.result, want.result);
      EXPECT_EQ(have.found, want.found);
    }
  }
  const auto first = tested.function<GetProcAddress>("cuGetProcAddress");
  const auto second = tested.function<GetProcAddressV2>("cuGetProcAddress_v2");
  EXPECT_EQ(first("cuLaunchKernel", nullptr, 13000, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(second("cuLaunchKernel", nullptr, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
}

// Without this the managed run could pass because nothing was managed.
TEST(Wrappers, WereAtWork) {
  if (over != "managed") GTEST_SKIP() << "only a managed process has wrappers";
  const board::JobTotals totals = board::totals(shared_board, 0, 0);
  EXPECT_EQ(totals.clients, 1);
  EXPECT_GT(totals.launches, 1000u);
  EXPECT_GT(totals.gated, 0u);
  EXPECT_GT(totals.gates, 0u);
  EXPECT_GT(totals.unknown_lookups, 0u);
}

INSTANTIATE_TEST_SUITE_P(Runtimes, Recording, testing::ValuesIn(recordings),
                         [](const auto& recording) { return std::filesystem::path(recording.param).stem().string(); });

// ---- setting up ------------------------------------------------------------------------------------------------

// A board with this process's job (index 0) and, in other jobs, a client above it and one below.
bool make_board(const std::string& path) {
  const Result<board::Board*> mapped = board::map(path.c_str(), stub::kStubUuid, "stub", true);
  if (!mapped.ok()) {
    std::fprintf(stderr, "replay_test: %s\n", mapped.status().message());
    return false;
  }
  shared_board = *mapped;
  const ProcessIdentity self = own_identity();
  for (int priority : {50, 100, 0}) {
    const Result<int> job = board::claim_job(shared_board, {.priority = priority, .name = "replay"}, self);
    if (!job.ok()) return false;
    if (priority != 50 && !board::claim_client(shared_board, *job, self).ok()) return false;
  }
  return true;
}

bool set_up() {
  char directory[] = "/tmp/sluice_replay.XXXXXX";
  setenv("SLUICE_DRIVER", stub_path.c_str(), 1);
  unsetenv("SLUICE_BOARDS");
  unsetenv("SLUICE_DISABLE");
  bool made = true;
  if (over == "managed") {
    if (!mkdtemp(directory)) return false;
    board_directory = directory;
    const std::string path = board_directory + "/board";
    made = make_board(path);
    setenv("SLUICE_BOARDS", (std::string(stub::kStubUuid) + "=" + path + ":0").c_str(), 1);
  }
  driver.handle = dlopen(stub_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  tested.handle = over == "stub" ? driver.handle : dlopen(shim_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!driver.handle || !tested.handle) {
    std::fprintf(stderr, "replay_test: %s\n", dlerror());
    return false;
  }
  stub_calls = driver.function<stub::CallsFunction>("sluice_stub_calls");
  stub_clear = driver.function<stub::ClearFunction>("sluice_stub_clear");
  stub_answer = driver.function<stub::AnswerFunction>("sluice_stub_answer");
  stub_address = driver.function<stub::AddressFunction>("sluice_stub_address");
  return made;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]).starts_with("--over=")) {
      sluice::over = argv[i] + std::strlen("--over=");
    } else if (argv[i][0] != '-') {
      arguments.push_back(argv[i]);
    }
  }
  if (arguments.size() < 3 || sluice::over.empty()) {
    std::fputs("usage: replay_test --over=stub|shim|managed STUB SHIM RECORDING...\n", stderr);
    return 2;
  }
  sluice::stub_path = arguments[0];
  sluice::shim_path = arguments[1];
  sluice::recordings.assign(arguments.begin() + 2, arguments.end());
  testing::InitGoogleTest(&argc, argv);
  const int result = sluice::set_up() ? RUN_ALL_TESTS() : 1;
  if (!sluice::board_directory.empty()) std::filesystem::remove_all(sluice::board_directory);
  return result;
}
