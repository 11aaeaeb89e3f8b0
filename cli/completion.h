// What a shell offers when the user presses Tab: the options, and their values, as the parser knows them.
// `sluice __complete WORD...` prints it for the words behind "sluice", the last of them begun or empty; the shells'
// scripts are in packaging/completions. Not thread safe.
//
// Each line is a suggestion, a tab, and what it means; or a request to the shell: ":files [PATTERN]", or ":command N",
// where the words from the N-th on (from 0, behind "sluice") are a command line of their own.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace sluice::cli {

inline constexpr char kCompleteVerb[] = "__complete";

struct Suggestion {
  std::string word, meaning;
};

// Prints those that begin with `begun`.
void print_suggestions(const std::vector<Suggestion>& suggestions, const std::string& begun);

// Suggestions that only the running machine knows, for "gpu" and "job".
using LiveSuggestions = std::vector<Suggestion> (*)(const std::string& what);
void set_live_suggestions(LiveSuggestions source);

// `words`: those behind the verb whose options `app` has.
void complete_options(const CLI::App& app, const std::vector<std::string>& words);

// The verb __complete of `sluice`. Returns the exit code.
int complete(std::vector<std::string> words);

}  // namespace sluice::cli
