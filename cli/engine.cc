// sluice infer, sluice optimize: hands over to lib/sluice/engine, so that the other verbs start without its libraries.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "installation.h"
#include "output.h"
#include "verbs.h"

namespace sluice::cli {
namespace {

int hand_over(const char* verb, const std::vector<std::string>& args) {
  const std::string program = find_installation().engine;
  std::vector<char*> argv = {const_cast<char*>("sluice"), const_cast<char*>(verb)};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  say(std::string(verb) + ": cannot start " + program + ": " + std::strerror(errno) +
      "; it is a part of Sluice: install or build Sluice as a whole");
  return kExitFailed;
}

}  // namespace

int infer_verb(std::vector<std::string> args) { return hand_over("infer", args); }
int optimize_verb(std::vector<std::string> args) { return hand_over("optimize", args); }

}  // namespace sluice::cli
