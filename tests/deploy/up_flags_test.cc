// What `tessera up` makes of a cluster description.
#include "deploy/up_flags.h"

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace tessera::deploy {
namespace {

using Catch::Contains;

// `tessera up MODEL` with these flags; they are given back in `flags`.
absl::Status Parse(std::vector<std::string> arguments, UpFlags& flags) {
  CLI::App app;
  CLI::App* up = AddUp(app, flags);
  arguments.insert(arguments.begin(), {"up", "MODEL"});
  app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  return FinishUp(*up, flags);
}

}  // namespace

TEST_CASE("workers are named after the one machine of --cluster, one per device") {
  const tests::TemporaryFolder folder;
  folder.Write("one.yaml",
               "machines: [{name: box, devices: [{kind: T4, count: 2}, {kind: L4}]}]\n");
  const std::string file = folder.path() / "one.yaml";
  UpFlags flags;
  REQUIRE(Parse({"--cluster", file}, flags).message() == "");
  CHECK(flags.options.machine == "box");
  CHECK(flags.options.described_devices == 3);
  UpFlags fewer;
  CHECK(Parse({"--cluster", file, "--workers", "2"}, fewer).message() == "");
  UpFlags more;
  CHECK_THAT(std::string(Parse({"--cluster", file, "--workers", "4"}, more).message()),
             Contains("--workers 4") && Contains("describes 3 devices of box"));
  UpFlags without;
  REQUIRE(Parse({}, without).message() == "");
  CHECK(without.options.machine == "local");
  CHECK(without.options.described_devices == 0);
}

TEST_CASE("a description of several machines is refused with what to start instead") {
  const tests::TemporaryFolder folder;
  folder.Write("two.yaml",
               "machines:\n- {name: a, devices: [{kind: T4}]}\n- {name: b, devices: [{kind: "
               "T4}]}\n");
  folder.Write("rented.yaml", "machines: [{name: a, available: 2, devices: [{kind: T4}]}]\n");
  for (const char* name : {"two.yaml", "rented.yaml"}) {
    INFO(name);
    UpFlags flags;
    const absl::Status status = Parse({"--cluster", folder.path() / name}, flags);
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()),
               Contains("describes 2 machines") &&
                   Contains("tessera-coordinator MODEL --cluster") &&
                   Contains("tessera-worker --coordinator HOST:PORT --name MACHINE/INDEX"));
  }
  UpFlags flags;
  CHECK_THAT(std::string(Parse({"--cluster", "/nowhere.yaml"}, flags).message()),
             Contains("/nowhere.yaml"));
}

}  // namespace tessera::deploy
