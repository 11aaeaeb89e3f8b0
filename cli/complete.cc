// sluice __complete: the verbs, and what is running, for the shells' completion.
#include <limits.h>

#include <algorithm>
#include <cstdio>

#include "completion.h"
#include "installation.h"
#include "job_slots.h"
#include "machine.h"
#include "sluice/base/status.h"
#include "sluice/board.h"
#include "verbs.h"

namespace sluice::cli {
namespace {

std::vector<Suggestion> running_jobs() {
  char runtime_dir[PATH_MAX];
  if (!board::runtime_directory(runtime_dir, sizeof runtime_dir).ok()) return {};
  std::vector<Suggestion> found;
  const Boards boards = Boards::open_all(runtime_dir);
  for (const board::Board* board : boards.all()) {
    for (const BoardJob& job : live_jobs(*board)) {
      const std::string id = std::to_string(job.id);
      if (std::none_of(found.begin(), found.end(), [&](const Suggestion& other) { return other.word == id; }))
        found.push_back({id, job.name});
    }
  }
  return found;
}

std::vector<Suggestion> gpus() {
  std::vector<Suggestion> found = {{"auto", "one, chosen"}};
  const Result<Machine> machine = Machine::look(find_installation());
  if (!machine.ok()) return found;
  for (const Candidate& gpu : machine->gpus()) found.push_back({std::to_string(gpu.index), gpu.name});
  return found;
}

std::vector<Suggestion> live(const std::string& what) { return what == "job" ? running_jobs() : gpus(); }

}  // namespace

int complete(std::vector<std::string> words) {
  if (words.size() < 2) {
    std::vector<Suggestion> names = {{"help", "what the verbs are, or what one does"}};
    for (const Verb& verb : verbs()) names.push_back({verb.name, verb.summary});
    print_suggestions(names, words.empty() ? "" : words.back());
    return kExitOk;
  }
  const std::string name = words.front();
  if (name == "help") return words.size() == 2 ? complete({words.back()}) : kExitOk;
  const auto dashes = std::find(words.begin() + 1, words.end() - 1, "--");
  if (dashes != words.end() - 1) {
    if (name == "run") std::printf(":command %td\n", dashes - words.begin() + 1);
    return kExitOk;
  }
  set_live_suggestions(&live);
  for (const Verb& verb : verbs()) {
    if (name != verb.name) continue;
    words.front() = kCompleteVerb;
    if (words.back() == "--") words.back() = "-";  // the same options, and not yet the end of them
    return verb.main(std::move(words));
  }
  return kExitOk;
}

}  // namespace sluice::cli
