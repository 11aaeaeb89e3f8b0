// One line that says what long work is at; only where standard error is a terminal. Not thread safe.
#pragma once

#include <string>

namespace sluice::cli {

class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(const std::string& text);
  void clear();  // before something else is written

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace sluice::cli
