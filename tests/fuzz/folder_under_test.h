// A folder of files that a fuzzer writes anew for every input: readers of model folders open their
// files themselves.
//
// Thread rule: one thread. Owns the folder: it goes when the process ends in order. Any failure of
// the file system ends the process: nothing could be tested.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace tessera::tests {

class FolderUnderTest {
 public:
  FolderUnderTest() {
    // Memory, where there is some to write to: a fuzzer writes thousands of files a second.
    std::error_code error;
    const bool memory = std::filesystem::is_directory("/dev/shm", error);
    std::string pattern = (memory ? "/dev/shm" : std::filesystem::temp_directory_path().string()) +
                          "/fuzzed-folder-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  FolderUnderTest(const FolderUnderTest&) = delete;
  FolderUnderTest& operator=(const FolderUnderTest&) = delete;
  ~FolderUnderTest() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  const std::filesystem::path& path() const { return path_; }

  void Write(std::string_view name, std::string_view text) const {
    std::ofstream file(path_ / name, std::ios::binary | std::ios::trunc);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    if (!file.flush()) std::abort();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace tessera::tests
