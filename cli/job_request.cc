#include "job_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sluice/base/clock.h"
#include "sluice/base/units.h"
#include "sluice/board.h"

namespace sluice::cli {
namespace {

template <class Int>
bool parse_whole(std::string_view text, Int* out) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

// Text of the user's inside a message: bounded, so that it cannot push out what to do about it.
std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::string shown = "'";
  for (char c : text.substr(0, kShown)) shown += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return shown + (text.size() > kShown ? "...'" : "'");
}

std::string_view last_component(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.empty() ? path : name;
}

}  // namespace

Result<int> parse_priority(std::string_view text) {
  if (text == "high") return 100;
  if (text == "normal") return 50;
  if (text == "low") return 0;
  int priority = 0;
  if (parse_whole(text, &priority) && priority >= kLowestPriority && priority <= kHighestPriority) return priority;
  return Status::error(Code::kInvalidArgument, "%s is no priority; use high, normal, low or an integer from %d to %d",
                       quoted(text).c_str(), kLowestPriority, kHighestPriority);
}

std::string priority_name(int priority) {
  switch (priority) {
    case 100:
      return "high";
    case 50:
      return "normal";
    case 0:
      return "low";
    default:
      return std::to_string(priority);
  }
}

Result<unsigned> parse_share(std::string_view text) {
  unsigned share = 0;
  if (parse_whole(text, &share) && share >= 1 && share <= kLargestShare) return share;
  return Status::error(Code::kInvalidArgument, "%s is no share; use an integer from 1 to %u", quoted(text).c_str(),
                       kLargestShare);
}

Result<unsigned> parse_leave_below(std::string_view text) {
  std::string_view number = text;
  if (!number.empty() && number.back() == '%') number.remove_suffix(1);
  double percent = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), percent);
  if (error == std::errc() && end == number.data() + number.size() && percent >= 0 && percent <= 90) {
    return static_cast<unsigned>(std::lround(percent * 10));
  }
  return Status::error(Code::kInvalidArgument, "%s is no part of the GPU's time to leave; use per cent from 0 to 90",
                       quoted(text).c_str());
}

Result<std::uint64_t> parse_linger(std::string_view text) {
  if (text == "auto") return board::kDefaultLingerNs;
  Result<std::uint64_t> parsed = parse_duration_ns(text);
  if (parsed.ok() && *parsed <= kNanosPerSecond) return parsed;
  return Status::error(Code::kInvalidArgument, "%s is no linger; use auto or a duration of at most 1s, such as 200us",
                       quoted(text).c_str());
}

Result<MemoryRequest> parse_memory(std::string_view text) {
  MemoryRequest request;
  if (!text.empty() && text.back() == '%') {
    const std::string_view number = text.substr(0, text.size() - 1);
    double percent = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), percent);
    if (error == std::errc() && end == number.data() + number.size() && percent > 0 && percent <= 100)
      request.permille = static_cast<unsigned>(std::lround(percent * 10));
  } else if (const Result<std::uint64_t> bytes = parse_bytes(text); bytes.ok()) {
    request.bytes = *bytes;
  }
  if (request.any()) return request;
  return Status::error(Code::kInvalidArgument, "%s is no memory limit; use a size such as 8GiB, or 60%% of the card's",
                       quoted(text).c_str());
}

Result<unsigned> parse_sm_percentage(std::string_view text) {
  std::string_view number = text;
  if (!number.empty() && number.back() == '%') number.remove_suffix(1);
  unsigned percent = 0;
  if (parse_whole(number, &percent) && percent >= 1 && percent <= 100) return percent;
  return Status::error(Code::kInvalidArgument, "%s is no part of the SMs; use whole per cent from 1 to 100",
                       quoted(text).c_str());
}

Result<GpuRequest> parse_gpus(std::string_view text) {
  GpuRequest request;
  if (text == "auto" || text.substr(0, 5) == "auto:") {
    request.kind = GpuRequest::Kind::kAuto;
    if (text == "auto") return request;
    if (parse_whole(text.substr(5), &request.count) && request.count >= 1) return request;
    return Status::error(Code::kInvalidArgument, "%s asks for no number of GPUs; write auto or, for two, auto:2",
                         quoted(text).c_str());
  }
  request.kind = GpuRequest::Kind::kList;
  std::string_view rest = text;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    unsigned index = 0;
    const bool is_index = parse_whole(name, &index);
    if (!is_index && name.substr(0, 4) != "GPU-" && name.substr(0, 4) != "MIG-") {
      return Status::error(Code::kInvalidArgument,
                           "%s names no GPU; use auto, an index, a UUID, or several with commas", quoted(text).c_str());
    }
    const std::string wanted = is_index ? std::to_string(index) : std::string(name);
    if (std::find(request.names.begin(), request.names.end(), wanted) != request.names.end()) {
      return Status::error(Code::kInvalidArgument, "%s names GPU %s twice", quoted(text).c_str(), wanted.c_str());
    }
    request.names.push_back(wanted);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  request.count = static_cast<int>(request.names.size());
  return request;
}

Result<std::vector<std::string>> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ' || c == '\t' || c == '\n') {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
      continue;
    }
    in_word = true;
    if (c == '\'') {
      const std::size_t end = text.find('\'', i + 1);
      if (end == std::string_view::npos) return Status::error(Code::kInvalidArgument, "a ' is not closed");
      word += text.substr(i + 1, end - i - 1);
      i = end;
    } else if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '$' || text[i] == '`') {
          return Status::error(Code::kInvalidArgument,
                               "no shell runs this, so %c does nothing; write [\"sh\", \"-c\", ...]", text[i]);
        }
        if (text[i] == '\\' && i + 1 < text.size() &&
            std::string_view("\"\\$`").find(text[i + 1]) != std::string_view::npos)
          ++i;
        word += text[i];
      }
      if (i >= text.size()) return Status::error(Code::kInvalidArgument, "a \" is not closed");
    } else if (c == '\\') {
      if (++i >= text.size()) return Status::error(Code::kInvalidArgument, "it ends with a backslash");
      word += text[i];
    } else if (std::string_view("|&;<>()$`").find(c) != std::string_view::npos) {
      return Status::error(Code::kInvalidArgument,
                           "no shell runs this, so %c does nothing; write [\"sh\", \"-c\", ...]", c);
    } else {
      word += c;
    }
  }
  if (in_word) words.push_back(std::move(word));
  return words;
}

std::string default_name(const std::vector<std::string>& command) {
  constexpr std::size_t kLongest = 40;
  if (command.empty()) return "";
  std::string name(last_component(command[0]));
  // An interpreter says little: its script says more.
  if (command.size() > 1 && !command[1].empty() && command[1][0] != '-') {
    name += ' ';
    name += last_component(command[1]);
  } else if (command.size() > 2 && command[1] == "-m") {
    name += " -m " + command[2];
  }
  return name.substr(0, kLongest);
}

}  // namespace sluice::cli
