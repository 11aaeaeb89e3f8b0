#include "board_set.h"

#include <dirent.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace sluice::daemon {
namespace {

constexpr std::string_view kSuffix = ".board";
constexpr int kLooksAScan = 32;  // at the life of processes, each a few microseconds, on all boards together

std::optional<FileId> id_of(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return std::nullopt;
  return FileId{info.st_dev, info.st_ino};
}

std::vector<std::string> board_files(const std::string& directory) {
  std::vector<std::string> paths;
  DIR* open = opendir(directory.c_str());
  if (open == nullptr) return paths;
  while (const dirent* entry = readdir(open)) {
    if (std::string_view(entry->d_name).ends_with(kSuffix)) paths.push_back(directory + "/" + entry->d_name);
  }
  closedir(open);
  return paths;
}

}  // namespace

bool MappedBoard::occupied() const {
  const auto taken = [](const auto& slot) { return slot.owner.load() != 0; };
  return std::any_of(std::begin(mapped_->jobs), std::end(mapped_->jobs), taken) ||
         std::any_of(std::begin(mapped_->clients), std::end(mapped_->clients), taken);
}

bool MappedBoard::has_file() const {
  const auto named = id_of(path_);
  return named && !(*named < id_) && !(id_ < *named);
}

void BoardSet::rescan() {
  for (const std::string& path : board_files(runtime_dir_)) {
    const auto id = id_of(path);
    if (!id || boards_.contains(*id) || refused_.contains(*id)) continue;
    Result<board::Board*> mapped = board::map(path.c_str());
    if (mapped.ok()) {
      boards_.emplace(*id, std::make_shared<MappedBoard>(*mapped, path, *id));
    } else if (mapped.status().code() != Code::kNotFound && mapped.status().code() != Code::kAborted) {
      spdlog::warn("a board is left alone: {}", mapped.status().message());
      refused_.emplace(*id, true);
    }
  }
  std::erase_if(boards_, [](const auto& entry) { return !entry.second->has_file() && !entry.second->occupied(); });
}

void BoardSet::reap_some(std::uint64_t now) {
  if (boards_.empty()) return;
  const int each = std::max<int>(1, kLooksAScan / static_cast<int>(boards_.size()));
  for (const auto& [id, board] : boards_) board::reap_some(board->get(), now, &board->reaped_up_to, each);
}

Boards BoardSet::all() const {
  Boards all;
  for (const auto& [id, board] : boards_) all.push_back(board);
  return all;
}

void BoardSet::remove_unused() {
  for (const auto& [id, board] : boards_) {
    if (!board->occupied() && board->has_file()) unlink(board->path().c_str());
  }
}

}  // namespace sluice::daemon
