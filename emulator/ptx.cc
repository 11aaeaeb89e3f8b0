#include "ptx.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace sluice::emulator {
namespace {

// Splits PTX into words and single punctuation characters, without comments.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  // The next token, empty at the end.
  std::string_view next() {
    skip_blanks();
    if (at_ >= text_.size()) return {};
    const std::size_t begin = at_;
    if (text_[at_] == '"') {
      for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      }
      at_ = std::min(at_ + 1, text_.size());
    } else if (is_word(text_[at_])) {
      while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    } else {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }
  int line() const {
    return 1 + static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<long>(at_), '\n'));
  }

 private:
  static bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '$' || c == '%';
  }
  void skip_blanks() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
        ++at_;
      } else if (text_.compare(at_, 2, "//") == 0) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.compare(at_, 2, "/*") == 0) {
        const std::size_t end = text_.find("*/", at_ + 2);
        at_ = end == std::string_view::npos ? text_.size() : end + 2;
      } else {
        return;
      }
    }
  }
  std::string_view text_;
  std::size_t at_ = 0;
};

std::size_t type_bytes(std::string_view type) {
  if (type == ".pred") return 1;
  if (type.size() < 3 || (type[1] != 'u' && type[1] != 's' && type[1] != 'b' && type[1] != 'f')) return 0;
  const std::string_view bits = type.substr(2);
  return bits == "8" ? 1 : bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : bits == "128" ? 16 : 0;
}

// A positive decimal number below 2^31, else 0.
std::size_t count_of(std::string_view token) {
  std::size_t value = 0;
  for (char c : token) {
    if (c < '0' || c > '9' || value > 100'000'000) return 0;
    value = value * 10 + static_cast<std::size_t>(c - '0');
  }
  return value;
}

// One parameter after its `.param`: [.align N] .type [.ptr ...] name [ [count] ]. Leaves `token` at `,` or `)`.
bool parse_param(Lexer& lexer, std::string_view& token, PtxEntry& entry) {
  std::size_t align = 0, element = 0, count = 1;
  bool pointer = false, named = false;
  for (token = lexer.next(); token != "," && token != ")"; token = lexer.next()) {
    if (token.empty()) return false;
    if (token == ".align") {
      // The alignment after .ptr is that of what it points to.
      const std::size_t value = count_of(lexer.next());
      if (!pointer) align = value;
    } else if (token == ".ptr") {
      pointer = true;
    } else if (token == "[") {
      count = count_of(lexer.next());
      if (count == 0 || lexer.next() != "]") return false;
    } else if (token[0] != '.') {
      named = true;
    } else if (std::size_t bytes = type_bytes(token); bytes != 0) {
      element = bytes;
    } else if (!pointer) {
      return false;
    }
  }
  if (element == 0 || !named) return false;
  if (align == 0) align = element;
  if ((align & (align - 1)) != 0) return false;
  PtxParam param;
  param.bytes = element * count;
  param.offset = (entry.param_bytes + align - 1) / align * align;
  entry.param_bytes = param.offset + param.bytes;
  entry.params.push_back(param);
  return entry.param_bytes <= 32764;  // the limit of PTX 8.1
}

}  // namespace

bool looks_like_ptx(const char* image) {
  const char* at = image;
  while (*at != '\0') {
    if (std::isspace(static_cast<unsigned char>(*at)) != 0) {
      ++at;
    } else if (at[0] == '/' && at[1] == '/') {
      while (*at != '\0' && *at != '\n') ++at;
    } else if (at[0] == '/' && at[1] == '*') {
      for (at += 2; *at != '\0' && !(at[0] == '*' && at[1] == '/'); ++at) {
      }
      if (*at != '\0') at += 2;
    } else {
      return std::strncmp(at, ".version", 8) == 0;
    }
  }
  return false;
}

Result<std::vector<PtxEntry>> parse_ptx(std::string_view text) {
  std::vector<PtxEntry> entries;
  Lexer lexer(text);
  int depth = 0;
  for (std::string_view token = lexer.next(); !token.empty(); token = lexer.next()) {
    if (token == "{") ++depth;
    if (token == "}" && --depth < 0) {
      return Status::error(Code::kInvalidArgument, "PTX line %d: '}' without '{'", lexer.line());
    }
    if (token != ".entry" || depth != 0) continue;
    PtxEntry entry;
    entry.name = lexer.next();
    if (entry.name.empty() || entry.name[0] == '.' || std::isdigit(static_cast<unsigned char>(entry.name[0])) != 0) {
      return Status::error(Code::kInvalidArgument, "PTX line %d: .entry without a name", lexer.line());
    }
    token = lexer.next();
    if (token == "(") {
      token = lexer.next();
      while (token != ")") {
        if (token != ".param" || !parse_param(lexer, token, entry)) {
          return Status::error(Code::kInvalidArgument, "PTX line %d: a parameter of %s is not understood", lexer.line(),
                               entry.name.c_str());
        }
        if (token == ",") token = lexer.next();
      }
    } else if (token == "{") {
      ++depth;
    }
    entries.push_back(std::move(entry));
  }
  if (depth != 0) return Status::error(Code::kInvalidArgument, "PTX: %d '{' without '}'", depth);
  return entries;
}

}  // namespace sluice::emulator
