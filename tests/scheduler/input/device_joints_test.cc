// Links of single devices inside a machine: which devices stand together, and how plans use them.
#include "scheduler/input/device_joints.h"

#include <catch2/catch.hpp>
#include <string>

#include "scheduler/planner/planner.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

using Catch::Contains;
using Groups = std::vector<std::vector<int>>;

constexpr LinkSpec kSlot = {12e9, 10e-6}, kNarrow = {0.8e9, 20e-6}, kBridge = {50e9, 5e-6};

TEST_CASE("devices that are joined alike are a group") {
  CHECK(DeviceJoints(4, kSlot, {}).groups() == Groups{{0, 1, 2, 3}});
  const DeviceJoints narrow(4, kSlot, {{3, kAllOthers, kNarrow}});
  CHECK(narrow.groups() == Groups{{0, 1, 2}, {3}});
  CHECK(narrow.Slowest({0, 1, 2}, {0, 1, 2}) == kSlot);
  CHECK(narrow.Slowest({0, 1, 2}, {3}) == kNarrow);
  const DeviceJoints bridges(4, kSlot, {{0, 1, kBridge}, {2, 3, kBridge}});
  CHECK(bridges.groups() == Groups{{0, 1}, {2, 3}});
  CHECK(bridges.Slowest({0, 1}, {0, 1}) == kBridge);
  CHECK(bridges.Slowest({0, 1}, {2, 3}) == kSlot);
  // A bridge beats the narrow slot of one of its ends.
  CHECK(DeviceJoints(3, kSlot, {{0, kAllOthers, kNarrow}, {0, 1, kBridge}}).groups() ==
        Groups{{0, 1}, {2}});
}

constexpr char kWork[] = "classes: [{lengths: [{prompt_tokens: 1155, output_tokens: 211}]}]";

std::string Four(const std::string& pairs) {
  return "machines: [{name: node4, devices: [{kind: RTX3090, count: 4}], inside: {bandwidth: 12 "
         "GB/s, latency: 15 us}" +
         pairs + "}]";
}

TEST_CASE("no stage shares layers over a card in a narrow slot") {
  PlannerOptions options;
  options.preference = UsualPreference();
  options.preference.prefer = v1::PLAN_PREFERENCE_LATENCY;
  const auto plan = [&](const std::string& pairs) {
    const auto made = MakePlan(tests::WrittenInput(Four(pairs), "Llama-3-8B", kWork), options);
    REQUIRE(made.status().message() == "");
    return *made;
  };
  const auto even = plan(""), narrow = plan(", pairs: [{device: 3, link: {bandwidth: 0.8 GB/s}}]");
  CHECK(even.replicas(0).stages(0).workers_size() == 4);
  for (const v1::Replica& replica : narrow.replicas()) {
    for (const v1::Stage& stage : replica.stages()) {
      if (stage.workers_size() < 2) continue;
      for (const v1::PlannedWorker& worker : stage.workers()) CHECK(worker.device() != "node4/3");
    }
  }
  CHECK(narrow.choices(0).alone_seconds() > even.choices(0).alone_seconds());
  // It still serves with the others: the machine is one, whatever its slots.
  options.preference.prefer = v1::PLAN_PREFERENCE_BALANCED;
  const auto all = plan(", pairs: [{device: 3, link: {bandwidth: 0.8 GB/s}}]");
  int devices = 0;
  for (const v1::Replica& replica : all.replicas()) {
    for (const v1::Stage& stage : replica.stages()) devices += stage.workers_size();
  }
  CHECK(devices == 4);
  for (const v1::Note& note : all.notes()) {
    if (note.has_lost_machine()) CHECK(note.lost_machine().requests_per_second() == 0);
  }
}

TEST_CASE("pairs that cannot be are refused by name") {
  const auto refusal = [](const std::string& pairs) {
    PlannerOptions options;
    return std::string(
        MakePlan(tests::WrittenInput(Four(", pairs: " + pairs), "Llama-3-8B", kWork), options)
            .status()
            .message());
  };
  CHECK_THAT(
      refusal("[{device: 4, link: {bandwidth: 1 GB/s}}]"),
      Contains("machines[0].pairs[0]: machine node4 has no device 4; its devices are 0 to 3"));
  CHECK_THAT(refusal("[{device: 1, to: 1, link: {bandwidth: 1 GB/s}}]"), Contains("to itself"));
  CHECK_THAT(refusal("[{device: 1}]"), Contains("pairs[0].link.bandwidth: must be above 0"));
  CHECK_THAT(
      refusal(
          "[{device: 1, to: 2, link: {bandwidth: 1 GB/s}}, {device: 2, to: 1, link: {bandwidth: "
          "2 GB/s}}]"),
      Contains("pairs[1]: says again"));
}

}  // namespace
}  // namespace tessera::scheduler
