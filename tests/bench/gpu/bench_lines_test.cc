// Which lines of gpu_bench are missed, and what an H100 is held to in time.
#include "tests/bench/gpu/bench_lines.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/temporary_folder.h"

namespace tessera::bench {
namespace {

nlohmann::json Reported(const BenchLines& lines, bool* met) {
  const tests::TemporaryFolder folder;
  const std::string file = (folder.path() / "figures.json").string();
  *met = lines.Report({{"device", "a"}}, file);
  return nlohmann::json::parse(std::ifstream(file));
}

TEST_CASE("a line below its bar is missed, and said so") {
  BenchLines lines(/*has_bars=*/true);
  bool met = false;
  lines.Add({"one", 0.7, 0.7, 0.8, "at its bar"});
  lines.Add({"none", 0.1, 0, 0, "without a bar"});
  CHECK(Reported(lines, &met)["lines"].size() == 2);
  CHECK(met);
  lines.Add({"other", 0.69, 0.7, 0.8, ""});
  const nlohmann::json said = Reported(lines, &met);
  CHECK_FALSE(met);
  CHECK(said["device"] == "a");
  CHECK(said["lines"][0]["met"] == true);
  CHECK(said["lines"][2]["met"] == false);
  BenchLines without(/*has_bars=*/false);
  without.Add({"other", 0.69, 0.7, 0.8, ""});
  Reported(without, &met);
  CHECK(met);
}

TEST_CASE("an H100 is held to times, other GPUs see them") {
  for (const bool h100 : {true, false}) {
    CAPTURE(h100);
    BenchLines lines(/*has_bars=*/true);
    lines.set_kind(h100 ? "H100-SXM" : "L4");
    bool met = false;
    lines.AddTime("decode step, int4, batch 16", 3.7e-3);
    lines.AddTime("decode step, int4, batch 17", 1);  // has no such bar
    CHECK(Reported(lines, &met)["lines"].size() == 1);
    CHECK(met);
    lines.AddTime("decode step, int4, batch 16", 3.8e-3);
    const nlohmann::json said = Reported(lines, &met);
    CHECK(met == !h100);
    CHECK(said["lines"][1]["name"] == "decode step, int4, batch 16, in time");
  }
}

}  // namespace
}  // namespace tessera::bench
