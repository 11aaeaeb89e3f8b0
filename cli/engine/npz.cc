#include "npz.h"

#include <minizip/unzip.h>
#include <minizip/zip.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "npy.h"

namespace sluice::cli {
namespace {

constexpr std::uint64_t kMostArrays = 1024;
constexpr std::uint64_t kBestRatio = 1032;  // of deflate: what claims more is damaged or hostile
constexpr std::size_t kChunk = 1u << 30;    // minizip counts in unsigned int

Status in_file(const std::string& path, const std::string& name, const Status& status) {
  return Status::error(status.code(), "%s: array '%.60s': %s", path.c_str(), name.c_str(), status.message());
}

// The entry that is the current one.
Result<Array> read_entry(unzFile file, const unz_file_info64& info, std::uint64_t file_bytes) {
  if (info.compressed_size > file_bytes || info.uncompressed_size > kBestRatio * info.compressed_size + 1024) {
    return Status::error(Code::kInvalidArgument, "its size contradicts its compressed size");
  }
  if (unzOpenCurrentFile(file) != UNZ_OK) {
    return Status::error(Code::kInvalidArgument, "damaged, encrypted, or compressed by something else than deflate");
  }
  auto array = read_npy(
      [&](char* to, std::size_t size) {
        std::size_t done = 0;
        while (done < size) {
          const int got = unzReadCurrentFile(file, to + done, static_cast<unsigned>(std::min(size - done, kChunk)));
          if (got <= 0) {
            break;
          }
          done += static_cast<std::size_t>(got);
        }
        return done;
      },
      info.uncompressed_size);
  if (unzCloseCurrentFile(file) == UNZ_CRCERROR && array.ok()) {
    return Status::error(Code::kInvalidArgument, "its checksum is wrong");
  }
  return array;
}

}  // namespace

Result<std::map<std::string, Array>> read_npz_file(const std::string& path) {
  struct stat status;
  if (access(path.c_str(), R_OK) != 0 || stat(path.c_str(), &status) != 0) {
    return Status::error(Code::kNotFound, "%s: %s", path.c_str(), std::strerror(errno));
  }
  const std::unique_ptr<void, int (*)(unzFile)> file(unzOpen64(path.c_str()), &unzClose);
  if (file == nullptr) {
    return Status::error(Code::kInvalidArgument, "%s: no .npz file (a zip archive)", path.c_str());
  }
  std::map<std::string, Array> arrays;
  std::uint64_t bytes = 0;
  int state = unzGoToFirstFile(file.get());
  for (std::uint64_t entries = 0; state == UNZ_OK; state = unzGoToNextFile(file.get()), ++entries) {
    char buffer[512] = {};
    unz_file_info64 info = {};
    state = unzGetCurrentFileInfo64(file.get(), &info, buffer, sizeof buffer - 1, nullptr, 0, nullptr, 0);
    if (state != UNZ_OK) {
      break;
    }
    std::string name = buffer;
    if (name.ends_with(".npy")) {
      name.resize(name.size() - 4);
    }
    bytes += info.uncompressed_size;
    if (entries >= kMostArrays || bytes > kArrayBytesLimit) {
      return Status::error(Code::kResourceExhausted, "%s: more than %llu arrays or %llu bytes", path.c_str(),
                           static_cast<unsigned long long>(kMostArrays),
                           static_cast<unsigned long long>(kArrayBytesLimit));
    }
    auto array = read_entry(file.get(), info, static_cast<std::uint64_t>(status.st_size));
    if (!array.ok()) {
      return in_file(path, name, array.status());
    }
    arrays[name] = std::move(*array);
  }
  if (state != UNZ_END_OF_LIST_OF_FILE) {
    return Status::error(Code::kInvalidArgument, "%s: the zip archive is damaged", path.c_str());
  }
  return arrays;
}

Status write_npz_file(const std::string& path, const std::vector<NamedView>& arrays) {
  zipFile file = zipOpen64(path.c_str(), APPEND_STATUS_CREATE);
  bool ok = file != nullptr;
  for (const NamedView& array : arrays) {
    auto header = npy_header(array.view.dtype, {array.view.dims.begin(), array.view.dims.end()});
    if (!header.ok()) {
      zipClose(file, nullptr);
      return in_file(path, array.name, header.status());
    }
    const zip_fileinfo info = {};
    ok = ok && zipOpenNewFileInZip64(file, (array.name + ".npy").c_str(), &info, nullptr, 0, nullptr, 0, nullptr, 0, 0,
                                     1) == ZIP_OK;
    const auto write = [&](const char* data, std::size_t size) {
      for (; ok && size > 0; data += std::min(size, kChunk), size -= std::min(size, kChunk)) {
        ok = zipWriteInFileInZip(file, data, static_cast<unsigned>(std::min(size, kChunk))) == ZIP_OK;
      }
    };
    write(header->data(), header->size());
    write(static_cast<const char*>(array.view.data), array.view.bytes);
    ok = ok && zipCloseFileInZip(file) == ZIP_OK;
  }
  ok = (file == nullptr || zipClose(file, nullptr) == ZIP_OK) && ok;
  return ok ? Status() : Status::error(Code::kInvalidArgument, "cannot write %s", path.c_str());
}

}  // namespace sluice::cli
