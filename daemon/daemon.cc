#include "sluice/daemon.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "messages.h"
#include "mps_keeper.h"
#include "report.h"
#include "sampler.h"
#include "scheduler.h"
#include "sluice/base/sharing.h"
#include "sluice/base/user.h"
#include "sluice/control.h"
#include "web.h"

namespace sluice::daemon {
namespace {

namespace asio = boost::asio;
using control::Json;
using Error = boost::system::error_code;

constexpr std::uint64_t kTakeOverNs = 1500 * kNanosPerMilli;  // for a daemon that is on its way out
constexpr std::uint64_t kIdleCheckNs = 200 * kNanosPerMilli;
constexpr std::uint64_t kShortestIdleCheckNs = 10 * kNanosPerMilli;
constexpr std::uint64_t kInUseNs = 2 * kNanosPerSecond;  // since a job was seen on a board
constexpr int kPriorityLimit = 1000;

class Daemon {
 public:
  Daemon(const Options& options, ClockGuardian* clocks)
      : options_(options),
        started_ns_(now_ns()),
        last_request_ns_(started_ns_),
        signals_(io_, SIGTERM, SIGINT),
        idle_check_(io_),
        scheduler_(options),
        messages_(options.runtime_dir),
        sampler_([this] { return fallback_library(); }, clocks, [this](Watch& watch) { take_care(watch); }),
        mps_keeper_(options.runtime_dir) {}

  Status run(control::FileLock lock) {
    lock_ = std::move(lock);
    auto server = control::Server::listen(
        io_, options_.runtime_dir,
        [this](const Json& request, uid_t user, auto reply) { handle(request, user, std::move(reply)); });
    if (!server.ok()) return server.status();
    server_ = std::move(*server);
    if (!options_.metrics.empty()) {
      auto web = Web::listen(io_, options_.metrics, options_.metrics_allow_remote,
                             [this](std::function<void(Json)> use) { status(std::move(use)); });
      if (!web.ok()) return web.status();
      web_ = std::move(*web);
      spdlog::info("metrics are at {}metrics", web_->url());
    }
    signals_.async_wait([this](Error error, int) {
      if (!error) leave();
    });
    scheduler_.rescan();
    scheduler_.start();
    watch_idleness();
    io_.run();
    return {};
  }

 private:
  void handle(const Json& request, uid_t user, control::Server::Reply reply) {
    last_request_ns_ = now_ns();
    const std::string& op = request["op"].get_ref<const std::string&>();
    if (op == "hello") return reply({{"version", SLUICE_VERSION}, {"pid", getpid()}, {"metrics", metrics_url()}});
    if (op == "status") return status(std::move(reply));
    if (op == "set_priority") return reply(set_priority(request, user));
    if (op == "shutdown") {
      if (user != 0 && user != geteuid()) {
        return reply(control::error_reply(
            Status::error(Code::kPermissionDenied, "this daemon serves a group: only its own user and root end it")));
      }
      reply({{"pid", getpid()}});
      // After the answer has been written: it was posted before this is.
      return asio::post(io_, [this] { asio::post(io_, [this] { leave(); }); });
    }
    reply(control::error_reply(Status::error(
        Code::kUnimplemented, "this daemon (version %s) knows no operation '%.60s'", SLUICE_VERSION, op.c_str())));
  }

  Json metrics_url() const { return web_ != nullptr ? Json(web_->url()) : Json(); }

  void status(control::Server::Reply reply) {
    scheduler_.rescan();
    sampler_.with_sample([this, reply = std::move(reply)](const Sample& sample) {
      reply(report(scheduler_.boards(), sample, scheduler_.cares(), facts(), now_ns()));
    });
  }

  Json set_priority(const Json& request, uid_t user) {
    const auto number = [&](const char* key) { return request.contains(key) && request[key].is_number_integer(); };
    if (!number("job") || !number("priority")) {
      return control::error_reply(
          Status::error(Code::kInvalidArgument, "set_priority needs the integers \"job\" and \"priority\""));
    }
    const Json& wanted = request["priority"];
    const bool too_large = wanted.is_number_unsigned() && wanted.get<std::uint64_t>() > kPriorityLimit;
    const auto priority = wanted.get<std::int64_t>();
    if (too_large || priority < -kPriorityLimit) {
      return control::error_reply(Status::error(Code::kInvalidArgument, "%.30s is no priority: from %d to %d",
                                                wanted.dump().c_str(), -kPriorityLimit, kPriorityLimit));
    }
    bool found = false;
    for (const auto& board : scheduler_.boards()) {
      for (board::Job& job : (*board)->jobs) {
        if (job.live.load() == 0 || request["job"] != job.id.load()) continue;
        uid_t owner = 0;
        if (user != 0 && board::job_user(board->get(), job, &owner) && owner != user) {
          return control::error_reply(Status::error(Code::kPermissionDenied, "job %s belongs to %s",
                                                    request["job"].dump().c_str(), user_name(owner).c_str()));
        }
        job.priority.store(static_cast<std::int32_t>(priority));
        (*board)->epoch.fetch_add(1);
        found = true;
      }
    }
    if (!found) {
      return control::error_reply(
          Status::error(Code::kNotFound, "no job %.30s; see sluice ps", request["job"].dump().c_str()));
    }
    return {{"job", request["job"]}, {"priority", priority}};
  }

  DaemonFacts facts() const {
    Sharing sharing;
    const bool by_group = sharing_of(options_.runtime_dir.c_str(), &sharing).ok() && sharing.by_group;
    return {started_ns_, options_.runtime_dir,
            by_group ? std::optional<std::string>(group_name(sharing.group)) : std::nullopt};
  }

  // For the sampler's thread: the emulator's NVML stands in only where the emulator's cards are in use.
  std::string fallback_library() const {
    for (const auto& board : scheduler_.boards()) {
      if ((*board)->simulated.load() != 0) return options_.fallback_nvml;
    }
    return "";
  }

  void watch_idleness() {
    const std::uint64_t wait_ns =
        std::clamp(options_.idle_exit_ns.value_or(kIdleCheckNs * 4) / 4, kShortestIdleCheckNs, kIdleCheckNs);
    idle_check_.expires_after(std::chrono::nanoseconds(wait_ns));
    idle_check_.async_wait([this](Error error) {
      if (error) return;
      // Its directory was deleted, and perhaps made anew: nobody reaches this daemon any more.
      if (!lock_.has_file()) return clean_up();
      watch_cards();
      const std::uint64_t last = std::max(last_request_ns_, scheduler_.last_occupied_ns());
      const bool mps = mps_keeper_.look(now_ns());
      const bool idle =
          options_.idle_exit_ns && !mps && now_ns() >= last + *options_.idle_exit_ns && server_->pending() == 0;
      if (!idle || !leave_if_unused()) watch_idleness();
    });
  }

  // While jobs are there: a card that nobody uses may sleep, and needs no care.
  void watch_cards() {
    std::vector<std::string> uuids;
    if (now_ns() < scheduler_.last_occupied_ns() + kInUseNs) {
      for (const auto& board : scheduler_.boards()) uuids.emplace_back((*board)->device);
    }
    const bool watches = !uuids.empty();
    if ((watches || watching_) && sampler_.watch(std::move(uuids))) watching_ = watches;
  }

  // On the sampler's thread.
  void take_care(Watch& watch) {
    scheduler_.set_cares(watch.cares());
    messages_.hint(scheduler_.boards(), watch.cares());
    for (const auto& [uuid, why] : watch.take_out()) messages_.take_out(uuid, why);
  }

  // Whoever is about to take a slot holds the boards lock from before it asked for a daemon.
  bool leave_if_unused() {
    const std::string path = options_.runtime_dir + "/" + control::kBoardsLockName;
    auto boards_lock = control::FileLock::acquire(path, control::FileLock::Mode::kExclusive, 0);
    if (!boards_lock.ok()) return false;
    scheduler_.rescan();
    for (const auto& board : scheduler_.boards()) {
      if (board->occupied()) return false;
    }
    boards_lock_ = std::move(*boards_lock);
    clean_up();
    return true;
  }

  void leave() {
    const std::string path = options_.runtime_dir + "/" + control::kBoardsLockName;
    auto boards_lock = control::FileLock::acquire(path, control::FileLock::Mode::kExclusive, 0);
    if (boards_lock.ok()) boards_lock_ = std::move(*boards_lock);
    clean_up();
  }

  void clean_up() {
    idle_check_.cancel();
    signals_.cancel();
    scheduler_.stop();
    server_.reset();
    web_.reset();
    if (boards_lock_.held()) {
      scheduler_.rescan();
      scheduler_.remove_unused_boards();
      remove_own_notes();
      for (const std::string& name : control::notices(options_.runtime_dir, control::kBatchHintPrefix))
        control::remove_notice(options_.runtime_dir, name);
      boards_lock_.remove_file();
    }
    const std::string log = options_.runtime_dir + "/" + control::kLogName;
    struct stat info;
    if (lock_.has_file() && lstat(log.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0)
      unlink(log.c_str());
    lock_.remove_file();
    io_.stop();
  }

  // What `sluice run` of this user remembers here; another member's notes are small and may stay.
  void remove_own_notes() const {
    unlink((options_.runtime_dir + "/" + control::kLoadedPrefix + std::to_string(geteuid())).c_str());
  }

  const Options options_;
  const std::uint64_t started_ns_;
  std::uint64_t last_request_ns_;
  control::FileLock lock_, boards_lock_;  // released last: what comes after must find nothing half removed
  asio::io_context io_;
  asio::signal_set signals_;
  asio::steady_timer idle_check_;
  std::unique_ptr<control::Server> server_;
  std::unique_ptr<Web> web_;
  Scheduler scheduler_;
  bool watching_ = false;
  Messages messages_;  // the sampler's thread has it
  Sampler sampler_;
  MpsKeeper mps_keeper_;
};

// The daemon lock, or nothing (not held) when another daemon answers.
Result<control::FileLock> become_the_one(const std::string& runtime_dir) {
  const std::string path = runtime_dir + "/" + control::kDaemonLockName;
  const std::uint64_t deadline = now_ns() + kTakeOverNs;
  while (true) {
    auto lock = control::FileLock::acquire(path, control::FileLock::Mode::kExclusive, 0);
    if (lock.ok() || lock.status().code() != Code::kDeadlineExceeded || now_ns() >= deadline) return lock;
    if (control::request(runtime_dir, {{"op", "hello"}}, 200 * kNanosPerMilli).ok()) return control::FileLock();
    sleep_ns(5 * kNanosPerMilli);
  }
}

}  // namespace

Status run(const Options& options) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  auto lock = become_the_one(options.runtime_dir);
  if (!lock.ok()) return lock.status();
  if (!lock->held()) {
    if (!options.metrics.empty()) {
      return Status::error(Code::kAlreadyExists, "a daemon serves %.120s already, without these metrics: end it first",
                           options.runtime_dir.c_str());
    }
    spdlog::info("another daemon serves {}", options.runtime_dir);
    return {};
  }
  lock->write(std::to_string(getpid()) + "\n");
  ClockGuardian clocks;
  if (options.allow_clock_control) {
    if (Status status = clocks.start(); !status.ok()) return status;
  }
  Daemon daemon(options, &clocks);
  return daemon.run(std::move(*lock));
}

}  // namespace sluice::daemon
