#include <string>

#include "sluice/control.h"

namespace sluice::control {
namespace {

// The library parses without recursion but prints with it: depth is bounded before anything is built.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

Result<Json> parse_object(std::string_view line) {
  if (line.size() >= kMaxMessageBytes) {
    return Status::error(Code::kInvalidArgument, "message of more than %zu bytes", kMaxMessageBytes);
  }
  if (too_deep(line)) return Status::error(Code::kInvalidArgument, "message nested deeper than %d levels", kMaxDepth);
  Json message = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!message.is_object()) return Status::error(Code::kInvalidArgument, "message is not one JSON object on a line");
  const auto version = message.find("v");
  if (version == message.end() || !version->is_number_integer()) {
    return Status::error(Code::kInvalidArgument, "message has no protocol version \"v\"");
  }
  if (*version != kProtocol) {
    return Status::error(Code::kFailedPrecondition,
                         "the other side speaks another protocol than %d: stop all jobs and use one version of Sluice",
                         kProtocol);
  }
  return message;
}

Code code_of(std::string_view name) {
  for (int code = 1; code <= static_cast<int>(Code::kUnavailable); ++code) {
    if (name == code_name(static_cast<Code>(code))) return static_cast<Code>(code);
  }
  return Code::kInternal;
}

}  // namespace

Result<Json> parse_request(std::string_view line) {
  Result<Json> message = parse_object(line);
  if (!message.ok()) return message;
  const auto op = message->find("op");
  if (op == message->end() || !op->is_string()) {
    return Status::error(Code::kInvalidArgument, "request has no operation \"op\"");
  }
  return message;
}

Result<Json> parse_reply(std::string_view line) {
  Result<Json> message = parse_object(line);
  if (!message.ok()) return message;
  const auto error = message->find("error");
  if (error == message->end()) return message;
  const auto text = [&](const char* key) -> std::string {
    if (!error->is_object()) return "";
    const auto value = error->find(key);
    return value != error->end() && value->is_string() ? value->get<std::string>() : "";
  };
  const std::string words = text("message");
  return Status::error(code_of(text("code")), "%s",
                       words.empty() ? "the daemon refused without a reason" : words.c_str());
}

Result<std::string> to_line(Json message) {
  message["v"] = kProtocol;
  std::string line = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  line += '\n';
  if (line.size() > kMaxMessageBytes) {
    return Status::error(Code::kResourceExhausted, "message of %zu bytes: more than %zu", line.size(),
                         kMaxMessageBytes);
  }
  return line;
}

Json error_reply(const Status& status) {
  return {{"error", {{"code", code_name(status.code())}, {"message", status.message()}}}};
}

}  // namespace sluice::control
