#include "tests/scheduler/cost/calibration.h"

#include <catch2/catch.hpp>

#include "tests/scheduler/cost/shapes.h"

namespace tessera::scheduler {
namespace {

CalibrationInput Input() {
  CalibrationInput input;
  input.models["m"] = tests::Llama30B();
  input.devices["x"] = tests::Device("x", 24, 120, 300);
  return input;
}

// What a card with known efficiencies would have measured.
std::vector<LayerObservation> Measure(const Calibration& truth) {
  std::vector<LayerObservation> points;
  for (const int devices : {1, 2}) {
    for (const double tokens : {500, 1000, 2000, 4000, 7000})
      points.push_back({"m", "x", devices, false, tokens, 1});
    for (const double rows : {2, 16, 64, 128, 240, 400})
      points.push_back({"m", "x", devices, true, rows, 1});
  }
  for (LayerObservation& point : points) point.seconds = PredictSeconds(truth, Input(), point);
  return points;
}

TEST_CASE("a fit finds the parameters that made the points") {
  Calibration truth;
  truth.decode_context_tokens = 735;
  DeviceSpec device = Input().devices.at("x");
  device.compute_efficiency = 0.45;
  device.memory_efficiency = 0.8;
  device.layer_overhead_seconds = 100e-6;
  truth.devices["x"] = device;
  truth.links["2xx"].bytes_per_second = 4e9;
  truth.links["2xx"].latency_seconds = 30e-6;
  const std::vector<LayerObservation> points = Measure(truth);
  const absl::StatusOr<Calibration> fit = Fit(points, Input());
  REQUIRE(fit.ok());
  CHECK(MeanAbsoluteError(*fit, Input(), points) < 0.005);
  CHECK(fit->devices.at("x").compute_efficiency == Approx(0.45).epsilon(0.02));
  CHECK(fit->devices.at("x").memory_efficiency == Approx(0.8).epsilon(0.03));
  CHECK(fit->links.at("2xx").bytes_per_second == Approx(4e9).epsilon(0.05));
  CHECK(fit->decode_context_tokens == Approx(735).epsilon(0.05));
}

TEST_CASE("what is missing is named") {
  CHECK(Fit({}, Input()).status().code() == absl::StatusCode::kInvalidArgument);
  const LayerObservation unknown = {"m", "y", 1, true, 1, 1};
  CHECK(std::string(Fit({&unknown, 1}, Input()).status().message()) == "layer times name device y");
}

TEST_CASE("layer times are read, and faults named by line") {
  const std::string header = "# source\nmodel,device,devices,phase,size,milliseconds_per_layer\n";
  const auto good = ParseLayerTimes(header + "m,x,2,decode,16,1.5\n", "f.csv");
  REQUIRE(good.ok());
  REQUIRE(good->size() == 1);
  CHECK((*good)[0].devices == 2);
  CHECK((*good)[0].decode);
  CHECK((*good)[0].seconds == Approx(1.5e-3));
  for (const char* line :
       {"m,x,2,decode,16", "m,x,0,decode,16,1", "m,x,1,both,16,1", "m,x,1,decode,16,-1"}) {
    const auto bad = ParseLayerTimes(header + line + "\n", "f.csv");
    CHECK_THAT(std::string(bad.status().message()), Catch::StartsWith("f.csv:3: expected"));
  }
  CHECK_FALSE(ParseLayerTimes("a,b\n", "f.csv").ok());
}

}  // namespace
}  // namespace tessera::scheduler
