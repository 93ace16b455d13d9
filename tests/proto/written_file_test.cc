#include "proto/written_file.h"

#include <catch2/catch.hpp>
#include <string>

#include "proto/file_text.h"
#include "tests/temporary_folder.h"

namespace tessera {
namespace {

using Catch::Matchers::Contains;

std::string ErrorOf(const std::string& path) {
  return std::string(WriteFileText(path, std::string(100'000, 'x')).message());
}

}  // namespace

TEST_CASE("a file is written as a whole, and why it cannot be is said") {
  tests::TemporaryFolder folder;
  const std::string path = (folder.path() / "plan.json").string();
  REQUIRE(WriteFileText(path, std::string(100'000, 'y')).ok());
  REQUIRE(WriteFileText(path, "short").ok());
  CHECK(*ReadFileText(path, 100) == "short");
  CHECK_THAT(ErrorOf("/dev/full"),
             Contains("cannot write /dev/full: No space left on device: make room there"));
  const std::string missing = (folder.path() / "none" / "plan.json").string();
  CHECK_THAT(ErrorOf(missing), Contains(missing) && Contains("No such file or directory"));
  CHECK_THAT(ErrorOf(folder.path().string()), Contains("Is a directory"));
}

}  // namespace tessera
