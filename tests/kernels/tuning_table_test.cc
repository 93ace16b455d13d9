#include "kernels/tuning_table.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "tests/temporary_folder.h"

namespace tessera::kernels {
namespace {

// Choices take these seconds on the clock of the table, and so long they last.
struct Fixture {
  TuningTable Open(const std::string& identity = "GPU-1, build a") {
    return TuningTable(file, identity, [this] { return now; });
  }
  TuningTable::Timed Taking(std::vector<double> seconds) {
    return [this, seconds = std::move(seconds)](int choice) -> absl::StatusOr<double> {
      ++measured;
      const double taken = seconds[static_cast<size_t>(choice)];
      if (taken < 0) return absl::InternalError("cannot");
      now += taken;
      return taken;
    };
  }

  const tests::TemporaryFolder folder;
  const std::string file = (folder.path() / "cache" / "tuning" / "GPU-1").string();
  double now = 0;
  int measured = 0;
};

TEST_CASE_METHOD(Fixture, "the fastest choice is kept for the next start of the same build") {
  {
    TuningTable table = Open();
    CHECK(table.Choose("a", 3, Taking({0.3, 0.1, 0.2})) == 1);
    CHECK(table.Choose("b", 3, Taking({0.3, -1, 0.31})) == 0);
    CHECK(table.Choose("noise", 2, Taking({0.3, 0.299})) == 0);
    CHECK(table.Choose("alone", 1, Taking({0.3})) == 0);
    CHECK(table.Describe() == "tuned: 3 choices, 3 of them measured at this start, 1.81 s spent");
    table.set_rates({{"int4", 1, 3e12}, {"int4", 64, 2.5e12}});
    REQUIRE(table.Save().message() == "");
  }
  measured = 0;
  TuningTable again = Open();
  CHECK(again.Choose("a", 3, Taking({0.3, 0.4, 0.2})) == 1);
  CHECK(measured == 0);
  CHECK(again.Describe() == "tuned: 3 choices");
  REQUIRE(again.rates().size() == 2);
  CHECK(again.rates()[1].weights == "int4");
  CHECK(again.rates()[1].rows == 64);
  CHECK(again.rates()[1].read_bytes_per_second == 2.5e12);
  // The library has fewer suggestions now: what was kept is none of them.
  CHECK(again.Choose("a", 1, Taking({0.3})) == 0);
}

TEST_CASE_METHOD(Fixture,
                 "another build, driver or device measures again; a spoilt file counts as none") {
  TuningTable table = Open();
  table.Choose("a", 2, Taking({0.3, 0.1}));
  REQUIRE(table.Save().ok());
  TuningTable other = Open("GPU-1, build b");
  CHECK(other.Choose("a", 2, Taking({0.1, 0.3})) == 0);
  std::ofstream(file)
      << "tessera tuning 1: GPU-1, build a\nchoice a x 0.1\nrate int4 1 inf\nchoice\n";
  TuningTable spoilt = Open();
  CHECK(spoilt.rates().empty());
  CHECK(spoilt.Choose("a", 2, Taking({0.1, 0.3})) == 0);
  std::ofstream(file) << "tessera tuning 1: GPU-1, build a\nrate int4 1 1.5";  // and no end
  CHECK(Open().rates().empty());
  std::ofstream(file) << "tessera tuning 1: GPU-1, build a\nchoice a 4294967295 0.1\nend\n";
  CHECK(Open().Choose("a", 2, Taking({0.1, 0.3})) == 0);
}

TEST_CASE_METHOD(Fixture, "a start measures no longer than its budget, and the next one goes on") {
  TuningTable table = Open();
  CHECK(table.Choose("a", 2, Taking({3, 2.5})) == 1);
  CHECK(table.seconds_left() == 0);
  measured = 0;
  CHECK(table.Choose("b", 2, Taking({3, 2})) == 0);
  CHECK(measured == 0);
  CHECK(table.Describe() ==
        "tuned: 1 choice, 1 of them measured at this start, 5.50 s spent, 1 left to the next "
        "start");
  REQUIRE(table.Save().ok());
  TuningTable next = Open();
  CHECK(next.Choose("b", 2, Taking({3, 2})) == 1);
}

TEST_CASE_METHOD(Fixture,
                 "a folder that cannot be written costs the next start its measurements alone") {
  std::ofstream((folder.path() / "cache").string()) << "a file";
  TuningTable table = Open();
  CHECK(table.Choose("a", 2, Taking({0.3, 0.1})) == 1);
  CHECK_THAT(std::string(table.Save().message()), Catch::Contains(file + ": the next start"));
}

}  // namespace
}  // namespace tessera::kernels
