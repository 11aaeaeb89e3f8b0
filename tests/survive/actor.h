// What the two halves of survive_actor share: the interpreter's commands.
//
// survive_actor does what the tests tell it, a command a line, and answers each with one line on standard output. It is
// a driver-API program like any other: it opens libcuda.so.1 by name and knows nothing of Sluice, except for the
// commands in board_commands.cc, which look at a board from outside. Thread safety: commands run in the main thread.
#pragma once

#include <map>
#include <string>

namespace sluice::survive {

// Gets the rest of its line and returns its answer. A failed driver call ends the program with exit code 1.
using Command = std::string (*)(const std::string& argument);

std::map<std::string, Command> gpu_commands();    // gpu_commands.cc
std::map<std::string, Command> board_commands();  // board_commands.cc

// Runs one line. An unknown command ends the program with exit code 2.
void run_line(const std::string& line);

}  // namespace sluice::survive
