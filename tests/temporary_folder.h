// A folder of its own for one test or benchmark, gone with the object.
// Thread rule: one thread. What cannot be made or written ends the process: nothing can be tested
// then.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace tessera::tests {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "tessera-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // A file below the folder, with the folders on its way; a leading / is the folder itself, so that
  // trees like /proc can be planted. An older file of that name is replaced.
  void Write(const std::filesystem::path& name, std::string_view text) const {
    const std::filesystem::path file = path_ / name.relative_path();
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    if (!out.flush()) std::abort();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace tessera::tests
