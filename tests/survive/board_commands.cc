// Commands that look at a board from outside, as a tool that freezes a job would.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "actor.h"
#include "sluice/base/clock.h"
#include "sluice/board.h"

namespace sluice::survive {
namespace {

board::Board* the_board = nullptr;

std::string map_board(const std::string& path) {
  Result<board::Board*> mapped = board::map(path.c_str());
  if (!mapped.ok()) return std::string("refused ") + mapped.status().message();
  if (the_board != nullptr) board::unmap(the_board);
  the_board = *mapped;
  return "mapped";
}

board::Board* mapped_board() {
  if (the_board == nullptr) {
    std::fprintf(stderr, "survive_actor: no board is mapped; say \"map PATH\" first\n");
    std::exit(2);
  }
  return the_board;
}

int client_of(const std::string& pid) {
  const board::Board* board = mapped_board();
  for (int i = 0; i < board::kClients; ++i) {
    const board::Client& client = board->clients[i];
    if (client.live.load() != 0 && pid_of(client.owner.load()) == std::atoi(pid.c_str())) return i;
  }
  return -1;
}

// Every slot that is taken, by the living or the dead, as JSON.
std::string show(const std::string&) {
  const board::Board* board = mapped_board();
  std::string clients;
  for (int i = 0; i < board::kClients; ++i) {
    const board::Client& client = board->clients[i];
    if (client.owner.load() == 0) continue;
    const board::Counters& counters = client.counters;
    clients += fmt::format(
        R"({}{{"slot": {}, "pid": {}, "job": {}, "live": {}, "active": {}, "gate": {}, "launches": {}, "gated": {}, )"
        R"("gates": {}, "holds": {}, "closes": {}, "stalls": {}}})",
        clients.empty() ? "" : ", ", i, pid_of(client.owner.load()), client.job.load(), client.live.load(),
        client.active.load(), client.gate.load(), counters.launches.load(), counters.gated.load(),
        counters.gates.load(), counters.holds.load(), counters.closes.load(), counters.stalls.load());
  }
  std::string jobs;
  for (int i = 0; i < board::kJobs; ++i) {
    if (board->jobs[i].owner.load() != 0) jobs += fmt::format("{}{}", jobs.empty() ? "" : ", ", i);
  }
  return fmt::format(R"({{"clients": [{}], "jobs": [{}], "daemon": {}}})", clients, jobs, pid_of(board->daemon.load()));
}

std::string freeze(const std::string& pid) {
  const int client = client_of(pid);
  if (client < 0) return "no such client";
  board::close_gate(mapped_board(), client, board::kSpareBit, now_ns());
  return "frozen";
}

std::string thaw(const std::string& pid) {
  const int client = client_of(pid);
  if (client < 0) return "no such client";
  board::open_gate(mapped_board(), client, board::kSpareBit, now_ns());
  return "thawed";
}

// Waits until nobody but the spare bit holds the process, or it is gone; answers with CLOCK_MONOTONIC in ns.
std::string await_open(const std::string& pid) {
  for (;;) {
    const int client = client_of(pid);
    if (client < 0 || (mapped_board()->clients[client].gate.load() & ~board::kSpareBit) == 0) break;
    sleep_ns(kNanosPerMilli);
  }
  return fmt::format("open {}", now_ns());
}

}  // namespace

std::map<std::string, Command> board_commands() {
  return {{"map", map_board}, {"show", show}, {"freeze", freeze}, {"thaw", thaw}, {"await-open", await_open}};
}

}  // namespace sluice::survive
