// What people write of a cluster in flags: names of workers, and addresses of coordinators.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "proto/coordinator_list.h"
#include "proto/worker_name.h"

namespace tessera {

using Catch::Contains;

TEST_CASE("a worker's name makes no line of a log and no step between folders") {
  for (const char* good : {"box/0", "box", "gpu-1.example.com/12", "a/b/c", "rack 2/0", "ü/0"}) {
    INFO(good);
    CHECK(WorkerNameProblem(good).empty());
  }
  for (const char* wrong : {"a\nb/0", "a\tb", "a\x1b[2Jb", "a\x7f", "", "/0", "box/", "a//b", "..",
                            "../x", "a/../b", "./a"}) {
    INFO(wrong);
    CHECK_THAT(WorkerNameProblem(wrong), Contains("a name "));
  }
  CHECK(WorkerNameProblem(std::string(255, 'a')).empty());
  CHECK_THAT(WorkerNameProblem(std::string(256, 'a')), Contains("at most 255"));
}

TEST_CASE("coordinators come with commas between, and none is missing") {
  const auto read = ReadCoordinatorList("a:1,[::1]:2");
  REQUIRE(read.ok());
  CHECK(*read == std::vector<std::string>{"a:1", "[::1]:2"});
  CHECK(ReadCoordinatorList("a:1")->size() == 1);
  const auto why = [](const char* list) {
    const absl::Status status = ReadCoordinatorList(list).status();
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  CHECK_THAT(why(""), Contains("--coordinator is empty"));
  for (const char* list : {"a:1,", ",a:1", "a:1,,b:2", ","})
    CHECK_THAT(why(list), Contains("--coordinator: an address is missing beside a comma"));
  CHECK_THAT(why("a:1,b"), Contains("--coordinator: \"b\" is not HOST:PORT"));
}

}  // namespace tessera
