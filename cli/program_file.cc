#include "program_file.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace sluice::cli {
namespace {

std::string search(const std::string& word, const std::string& path) {
  if (word.find('/') != word.npos) return access(word.c_str(), X_OK) == 0 ? word : "";
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    const std::string folder = path.substr(at, end - at);
    std::string file = (folder.empty() ? "." : folder) + "/" + word;
    if (access(file.c_str(), X_OK) == 0) return file;
    at = end + 1;
  }
  return "";
}

// The words of its first line behind "#!"; "" for a file that is no script.
std::string first_line(const std::string& file) {
  constexpr std::size_t kLongest = 256;  // as the kernel reads it
  std::string text(kLongest, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text.starts_with("#!") ? text.substr(2, text.find('\n') - 2) : "";
}

}  // namespace

std::string program_file(const std::string& word, const std::string& path) {
  std::string file = search(word, path);
  const std::string line = file.empty() ? "" : first_line(file);
  if (line.empty()) return file;
  std::istringstream words(line);
  std::string interpreter, argument;
  words >> interpreter >> argument;
  const bool is_env = interpreter.substr(interpreter.rfind('/') + 1) == "env";
  if (is_env && argument == "-S") words >> argument;
  return search(is_env ? argument : interpreter, path);
}

}  // namespace sluice::cli
