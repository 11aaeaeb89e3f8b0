#include "completion.h"

#include <cstdio>
#include <map>

#include "output.h"

namespace sluice::cli {
namespace {

LiveSuggestions live_suggestions = nullptr;

// Words that an option takes, where its help lists them in prose.
const std::map<std::string, std::vector<Suggestion>>& known_values() {
  static const std::map<std::string, std::vector<Suggestion>> values = {
      {"--priority", {{"high", "100"}, {"normal", "50"}, {"low", "0"}}},
      {"--linger", {{"auto", "the default"}}},
      {"--device", {{"cpu", ""}}},
      {"--precision", {{"fp32", ""}, {"fp16", ""}}},
      {"--layout", {{"auto", ""}, {"nchw", ""}, {"nhwc", ""}}},
      {"--order", {{"rgb", ""}, {"bgr", ""}}},
  };
  return values;
}

bool mentions(const CLI::Option& option, const char* word) {
  return option.get_option_text().find(word) != std::string::npos ||
         option.get_description().find(word) != std::string::npos;
}

void complete_value(const CLI::Option& option, const std::string& begun, const std::string& before = "") {
  const std::string name = option.get_lnames().empty() ? "" : "--" + option.get_lnames().front();
  std::vector<Suggestion> suggestions;
  if (const auto known = known_values().find(name); known != known_values().end()) {
    suggestions = known->second;
  } else if (mentions(option, "JOB...") || name == "--gpu") {
    if (live_suggestions != nullptr) suggestions = live_suggestions(name.empty() ? "job" : "gpu");
  } else if (mentions(option, "TOML")) {
    std::puts(":files *.toml");
  } else if (mentions(option, "ONNX file")) {
    std::puts(":files *.onnx");
  } else if (mentions(option, "FILE") || mentions(option, "file")) {
    std::puts(":files");
  }
  for (Suggestion& suggestion : suggestions) suggestion.word = before + suggestion.word;
  print_suggestions(suggestions, before + begun);
}

const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  if (name.size() < 2 || name[0] != '-') return nullptr;
  return app.get_option_no_throw(name);
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

}  // namespace

void print_suggestions(const std::vector<Suggestion>& suggestions, const std::string& begun) {
  for (const Suggestion& suggestion : suggestions) {
    if (suggestion.word.compare(0, begun.size(), begun) == 0)
      std::printf("%s\t%s\n", printable(suggestion.word).c_str(), printable(suggestion.meaning).c_str());
  }
}

void set_live_suggestions(LiveSuggestions source) { live_suggestions = source; }

void complete_options(const CLI::App& app, const std::vector<std::string>& words) {
  const std::string begun = words.empty() ? "" : words.back();
  const std::string previous = words.size() < 2 ? "" : words[words.size() - 2];
  if (const CLI::Option* option = find_option(app, previous); option != nullptr && takes_value(*option)) {
    complete_value(*option, begun);
    return;
  }
  if (const std::size_t equals = begun.find('='); equals != std::string::npos && begun[0] == '-') {
    const CLI::Option* option = find_option(app, begun.substr(0, equals));
    if (option != nullptr) complete_value(*option, begun.substr(equals + 1), begun.substr(0, equals + 1));
    return;
  }
  std::vector<Suggestion> options;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() && !option->get_positional()) continue;
    if (option->get_positional() && (begun.empty() || begun[0] != '-')) complete_value(*option, begun);
    for (const std::string& name : option->get_lnames()) options.push_back({"--" + name, option->get_description()});
  }
  if (!begun.empty() && begun[0] == '-') print_suggestions(options, begun);
}

}  // namespace sluice::cli
