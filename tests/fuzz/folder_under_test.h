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

#include "tests/temporary_folder.h"

namespace tessera::tests {

class FolderUnderTest : public TemporaryFolder {
 public:
  FolderUnderTest() : TemporaryFolder(Parent()) {}

 private:
  // Memory, where there is some to write to: a fuzzer writes thousands of files a second.
  static std::filesystem::path Parent() {
    std::error_code error;
    const bool memory = std::filesystem::is_directory("/dev/shm", error);
    return memory ? "/dev/shm" : std::filesystem::temp_directory_path();
  }
};

}  // namespace tessera::tests
