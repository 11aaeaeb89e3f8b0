#include <algorithm>
#include <cstdio>
#include <memory>

#include "completion.h"
#include "output.h"
#include "sluice/base/status.h"
#include "suggest.h"
#include "verbs.h"

namespace sluice::cli {
namespace {

std::vector<std::string> long_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

class UsageFormatter : public CLI::Formatter {
 public:
  explicit UsageFormatter(const char* usage) : usage_(usage) {}
  std::string make_usage(const CLI::App*, std::string) const override { return std::string(usage_) + "\n"; }

 private:
  const char* usage_;
};

// Messages of the parser may be several lines long.
std::string one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

void set_usage(CLI::App& app, const char* usage) { app.formatter(std::make_shared<UsageFormatter>(usage)); }

std::optional<int> parse(CLI::App& app, std::vector<std::string> args) {
  if (!args.empty() && args.front() == kCompleteVerb) {
    complete_options(app, {args.begin() + 1, args.end()});
    return kExitOk;
  }
  app.allow_extras();
  app.get_formatter()->column_width(34);
  std::reverse(args.begin(), args.end());
  try {
    app.parse(std::move(args));
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    return usage_error(app.get_name(), one_line(error.what()));
  }
  for (const std::string& extra : app.remaining()) {
    if (extra.size() > 1 && extra[0] == '-') {
      const std::string name = extra.substr(0, extra.find('='));
      return usage_error(app.get_name(), "unknown option " + name + did_you_mean(name, long_options(app)));
    }
    return usage_error(app.get_name(), "unexpected argument '" + extra + "'; see sluice " + app.get_name() + " --help");
  }
  return std::nullopt;
}

int usage_error(const std::string& verb, const std::string& text) {
  say(verb + ": " + text);
  return kExitUsage;
}

}  // namespace sluice::cli
