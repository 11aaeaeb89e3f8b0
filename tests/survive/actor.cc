// survive_actor [COMMAND]... [-]: runs its arguments as commands, then, after "-", the lines of standard input.
#include "actor.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>

namespace sluice::survive {
namespace {

std::string after_wait(pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return "child lost";
  return "child " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

std::string own_pid(const std::string&) { return "pid " + std::to_string(getpid()); }

std::string leave(const std::string& code) { std::exit(std::atoi(code.c_str())); }

// A child that runs `line` in the same image, and ends with its destructors.
std::string fork_and_run(const std::string& line) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    run_line(line);
#ifdef SLUICE_SANITIZED
    _exit(7);  // the check for leaks waits for locks that the parent's threads had
#else
    std::exit(7);
#endif
  }
  return after_wait(child);
}

// A child that becomes a new survive_actor with the commands in `lines`, which stand between semicolons.
std::string fork_and_exec(const std::string& lines) {
  std::vector<std::string> words = {"survive_actor"};
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line, ';');) words.push_back(line);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    execv("/proc/self/exe", arguments.data());
    _exit(127);
  }
  return after_wait(child);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return "read " + line;
}

std::string write_file(const std::string& path) {
  std::ofstream(path) << "hello" << std::endl;
  return "written";
}

const std::map<std::string, Command>& commands() {
  static const std::map<std::string, Command>& all = *[] {
    auto* map = new std::map<std::string, Command>{
        {"pid", own_pid},        {"exit", leave},     {"fork", fork_and_run},
        {"exec", fork_and_exec}, {"read", read_file}, {"write", write_file},
    };
    map->merge(gpu_commands());
    map->merge(board_commands());
    return map;
  }();
  return all;
}

}  // namespace

void run_line(const std::string& line) {
  const std::size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  const auto found = commands().find(name);
  if (found == commands().end()) {
    std::fprintf(stderr, "survive_actor: no command is called '%s'\n", name.c_str());
    std::exit(2);
  }
  std::printf("%s\n", found->second(space == std::string::npos ? "" : line.substr(space + 1)).c_str());
  std::fflush(stdout);
}

}  // namespace sluice::survive

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word != "-") {
      sluice::survive::run_line(word);
      continue;
    }
    for (std::string line; std::getline(std::cin, line);) sluice::survive::run_line(line);
  }
  return 0;
}
