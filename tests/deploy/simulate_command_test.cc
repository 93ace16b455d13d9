#include "deploy/simulate_command.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "deploy/plan_command.h"
#include "deploy/plan_file.h"
#include "proto/file_text.h"

namespace tessera::deploy {
namespace {

std::string Scratch(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder == nullptr ? "/tmp" : folder) + "/" + name;
}

// The published layout of four A6000, two A5000 and two A4000, as a plan in a file.
SimulateFlags PlannedFlags() {
  PlanFlags plan;
  plan.cluster = "deploy/clusters/workstations.yaml";
  plan.model = "Llama-2-70B";
  plan.workload = "deploy/workloads/azure_conversation.yaml";
  plan.layout = Scratch("layout.yaml");
  std::ofstream(plan.layout) << "replicas:\n- stages:\n"
                                "  - {devices: [a/0..3], layers: 48}\n"
                                "  - {devices: [b/0..1], layers: 20}\n"
                                "  - {devices: [c/0..1], layers: 12}\n";
  const auto made = PlanFromFiles(plan);
  INFO(made.status());
  REQUIRE(made.ok());
  const auto json = PlanJson(*made);
  REQUIRE(json.ok());
  SimulateFlags flags;
  flags.plan = Scratch("plan.json");
  std::ofstream(flags.plan) << *json;
  flags.cluster = plan.cluster;
  flags.workload = plan.workload;
  flags.requests = 200;
  flags.requests_per_second = 0.3;
  return flags;
}

}  // namespace

TEST_CASE("a plan is simulated from its files, and drawn") {
  SimulateFlags flags = PlannedFlags();
  flags.max_ttft = "60 s";
  flags.csv = Scratch("requests.csv");
  flags.rates_csv = Scratch("rates.csv");
  flags.attainment_svg = Scratch("attainment.svg");
  flags.timeline_svg = Scratch("timeline.svg");
  const auto summary = SimulateFromFiles(flags);
  INFO(summary.status());
  REQUIRE(summary.ok());
  CHECK_THAT(*summary, Catch::Contains("200 requests at 0.300 per second (0.") &&
                           Catch::Contains(" as drawn): 200 finished, 0 failed") &&
                           Catch::Contains("requests arrive at 0.300 per second (--rate), "));
  CHECK(summary->find("objectives met by 100.00 %") != std::string::npos);
  CHECK(summary->find("; efficiencies ") != std::string::npos);  // the plan's assumptions
  CHECK(*SimulateFromFiles(flags) == *summary);
  for (const std::string& picture : {flags.attainment_svg, flags.timeline_svg}) {
    const auto text = ReadFileText(picture, 1 << 20);
    REQUIRE(text.ok());
    CHECK(text->starts_with("<svg"));
    CHECK(text->ends_with("</svg>\n"));
    CHECK(text->find("polyline") != std::string::npos);
    CHECK(text->find("nan") == std::string::npos);
    CHECK(text->find("simulated with the cost model; ESTIMATED, not measured: efficiencies of ") !=
          std::string::npos);
  }
  const auto lines = [](const std::string& file) {
    const auto text = ReadFileText(file, 1 << 20);
    REQUIRE(text.ok());
    return std::count(text->begin(), text->end(), '\n');
  };
  CHECK(lines(flags.csv) == 202);
  CHECK(lines(flags.rates_csv) == 14);
  for (const std::string& csv : {flags.csv, flags.rates_csv}) {
    const auto text = ReadFileText(csv, 1 << 20);
    REQUIRE(text.ok());
    CHECK(text->starts_with(
        "# simulated with the cost model; ESTIMATED, not measured: efficiencies of "));
    CHECK(text->find("\nrequest") == text->find('\n'));  // the columns come next
  }
}

namespace {

// The cells of a column of a CSV whose first line is a comment.
std::vector<std::string> Column(const std::string& file, size_t column) {
  std::ifstream csv(file);
  std::vector<std::string> cells;
  std::string line;
  std::getline(csv, line);
  std::getline(csv, line);
  while (std::getline(csv, line)) {
    std::istringstream row(line);
    std::string cell;
    for (size_t i = 0; i <= column; ++i) std::getline(row, cell, ',');
    cells.push_back(cell);
  }
  return cells;
}

}  // namespace

// Hundreds of requests are under way at once: 5000 would be over before everything has filled.
TEST_CASE("as many requests are drawn as it takes to tell what is sustained") {
  PlanFlags plan;
  plan.cluster = Scratch("many.yaml");
  std::ofstream(plan.cluster) << "machines: [{name: a, devices: [{kind: A100-80, count: 8}]}]\n";
  plan.model = "Llama-3-8B";
  plan.prompt_tokens = 100;
  plan.output_tokens = 1500;
  plan.layout = Scratch("eight.yaml");
  std::ofstream layout(plan.layout);
  layout << "replicas:\n";
  for (int i = 0; i < 8; ++i) layout << "- stages: [{devices: [a/" << i << "], layers: 32}]\n";
  layout.close();
  const auto made = PlanFromFiles(plan);
  REQUIRE(made.status().message() == "");
  SimulateFlags flags;
  flags.plan = Scratch("many.json");
  std::ofstream(flags.plan) << *PlanJson(*made);
  flags.cluster = plan.cluster;
  flags.prompt_tokens = plan.prompt_tokens;
  flags.output_tokens = plan.output_tokens;
  const auto enough = SimulateFromFiles(flags);
  REQUIRE(enough.status().message() == "");
  const auto figure = [](const std::string& text, const std::string& behind) {
    const size_t at = text.find(behind);
    REQUIRE(at != std::string::npos);
    return std::stod(text.substr(at + behind.size()));
  };
  const double offered = 0.85 * made->prediction().requests_per_second();
  CHECK(std::stoll(*enough) > 8000);
  CHECK(figure(*enough, " s): ") == Approx(offered).epsilon(0.03));
  CHECK_THAT(*enough,
             !Catch::Contains("warning:") && Catch::Contains(enough->substr(0, enough->find(' ')) +
                                                             " requests drawn with seed 1"));

  flags.requests = 1000;
  const auto few = SimulateFromFiles(flags);
  REQUIRE(few.status().message() == "");
  CHECK_THAT(*few, Catch::StartsWith("1000 requests") &&
                       Catch::Contains("\nwarning: requests arrived for ") &&
                       Catch::Contains("too few to measure the sustained rate; "));
  flags.requests = static_cast<int64_t>(figure(*few, "--requests "));
  CHECK(flags.requests > 5000);
  const auto advised = SimulateFromFiles(flags);
  REQUIRE(advised.status().message() == "");
  CHECK_THAT(*advised, !Catch::Contains("warning:"));
  CHECK(figure(*advised, " s): ") == Approx(offered).epsilon(0.03));
}

TEST_CASE("answers end at --max-tokens, as those of a server do") {
  SimulateFlags flags = PlannedFlags();
  flags.csv = Scratch("cut.csv");
  constexpr size_t kOutputTokens = 3;
  const auto whole = SimulateFromFiles(flags);
  REQUIRE(whole.status().message() == "");
  const std::vector<std::string> lengths = Column(flags.csv, kOutputTokens);
  CHECK_THAT(*whole, Catch::Contains(": that of the longest answer, for all\n"));

  flags.max_tokens = 100;
  const auto cut = SimulateFromFiles(flags);
  REQUIRE(cut.status().message() == "");
  CHECK_THAT(*cut, Catch::Contains(": 100 tokens (--max-tokens), where it ends\n") &&
                       !Catch::Contains("answers = 211 on average"));
  const std::vector<std::string> cut_lengths = Column(flags.csv, kOutputTokens);
  REQUIRE(cut_lengths.size() == 200);
  bool longer = false, shorter = false;
  for (size_t i = 0; i < cut_lengths.size(); ++i) {
    const int length = std::stoi(lengths[i]);
    CHECK(std::stoi(cut_lengths[i]) == std::min(length, 100));
    longer = longer || length > 100;
    shorter = shorter || length < 100;
  }
  CHECK(longer);
  CHECK(shorter);

  flags.workflows = "generated";
  flags.workload = "";
  CHECK_THAT(std::string(SimulateFromFiles(flags).status().message()),
             Catch::StartsWith("--max-tokens: ") && Catch::Contains("leave it out with"));
}

TEST_CASE("limits of flags and of classes are the simulator's: what misses one is noted") {
  SimulateFlags flags = PlannedFlags();
  flags.max_ttft = "1 ms";
  flags.csv = Scratch("missed.csv");
  REQUIRE(SimulateFromFiles(flags).status().message() == "");
  std::ifstream csv(flags.csv);
  std::string line;
  std::getline(csv, line);  // what the figures rest on
  std::getline(csv, line);
  REQUIRE(line.find(",first_token_missed_seconds,last_token_missed_seconds,") != std::string::npos);
  int missed = 0;
  while (std::getline(csv, line)) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    missed += std::stod(cells.at(8)) == Approx(std::stod(cells.at(1)) + 1e-3) ? 1 : 0;
    CHECK(cells.at(9) == "-1");
  }
  CHECK(missed == 200);
  flags.max_ttft = "";
  flags.workload = "deploy/workloads/chat_and_code.yaml";
  const auto classes = SimulateFromFiles(flags);
  REQUIRE(classes.ok());
  CHECK(classes->find("  chat: ") != std::string::npos);
  CHECK(classes->find(" of 200 (asked") == std::string::npos);  // neither class is all of them
  CHECK(classes->find("(asked: 80 %): all within 6 s\n") != std::string::npos);
}

TEST_CASE(
    "what the simulation's own flags replace of the plan's assumptions is not told any more") {
  SimulateFlags flags = PlannedFlags();
  const auto planned = SimulateFromFiles(flags);
  REQUIRE(planned.ok());
  CHECK(planned->find("at most 2048 tokens in one step") != std::string::npos);
  CHECK(planned->find("rate = as much as the cluster can serve") == std::string::npos);
  flags.max_batched_tokens = 7;
  const auto narrow = SimulateFromFiles(flags);
  INFO(narrow.status());
  REQUIRE(narrow.ok());
  CHECK(narrow->find("at most 2048 tokens") == std::string::npos);
  CHECK(
      narrow->find("at most 7 tokens in one step (--max-batched-tokens), sequences at once in one "
                   "replica as the plan says") != std::string::npos);
}

TEST_CASE("a split plan sends KV over the cluster's links") {
  PlanFlags plan;
  plan.cluster = "deploy/clusters/workstations.yaml";
  plan.model = "Llama-3-8B";
  plan.layout = Scratch("split.yaml");
  std::ofstream(plan.layout) << "replicas:\n- role: prefill\n  stages:\n"
                                "  - {devices: [a/0..3], layers: 32}\n"
                                "- role: decode\n  stages:\n"
                                "  - {devices: [b/0..1], layers: 20}\n"
                                "  - {devices: [c/0..1], layers: 12}\n";
  const auto made = PlanFromFiles(plan);
  INFO(made.status());
  REQUIRE(made.ok());
  SimulateFlags flags;
  flags.plan = Scratch("split.json");
  std::ofstream(flags.plan) << *PlanJson(*made);
  flags.cluster = plan.cluster;
  flags.requests = 100;
  flags.requests_per_second = 1;
  const auto summary = SimulateFromFiles(flags);
  INFO(summary.status());
  REQUIRE(summary.ok());
  CHECK(summary->find("100 finished, 0 failed") != std::string::npos);
  CHECK(summary->find("link a > b") != std::string::npos);
  CHECK(summary->find("link a > c") != std::string::npos);
}

TEST_CASE("losses and stragglers come when the caller says") {
  SimulateFlags flags = PlannedFlags();
  const auto undisturbed = SimulateFromFiles(flags);
  REQUIRE(undisturbed.ok());
  flags.changes = {"r0 slow 2 1 min", "r0 lost 300 s", "r0 back 310 s"};
  const auto disturbed = SimulateFromFiles(flags);
  INFO(disturbed.status());
  REQUIRE(disturbed.ok());
  CHECK(disturbed->find("requests were submitted again") != std::string::npos);
  CHECK(undisturbed->find("requests were submitted again") == std::string::npos);
  for (const char* wrong : {"r7 lost 1 s", "r0 eaten 1 s", "r0 lost", "r0 slow fast 1 s"}) {
    flags.changes = {wrong};
    INFO(wrong);
    CHECK(std::string(SimulateFromFiles(flags).status().message()).find("--change") == 0);
  }
}

TEST_CASE("what cannot be simulated is refused with the reason") {
  SimulateFlags flags = PlannedFlags();
  flags.routing = "luck";
  CHECK(SimulateFromFiles(flags).status().message() ==
        "--routing: \"luck\" is none of router, load, shares, round-robin");
  flags = PlannedFlags();
  flags.model = "Llama-2-7B";
  CHECK(std::string(SimulateFromFiles(flags).status().message()).find("has 32 layers") !=
        std::string::npos);
  flags = PlannedFlags();
  flags.cluster = "deploy/clusters/one_gpu.yaml";
  CHECK_THAT(std::string(SimulateFromFiles(flags).status().message()),
             Catch::Contains("device a/0 is not in the cluster description; --cluster must"));
  flags = PlannedFlags();
  flags.prompt_tokens = 500;
  CHECK_THAT(std::string(SimulateFromFiles(flags).status().message()),
             Catch::StartsWith("--prompt: beside --workload deploy/workloads/"));
  flags = PlannedFlags();
  flags.plan = "nothing.json";
  CHECK(!SimulateFromFiles(flags).ok());
}

TEST_CASE("a plan whose devices are called what they are not is not simulated") {
  SimulateFlags flags = PlannedFlags();
  auto plan = ReadPlanFile(flags.plan);
  REQUIRE(plan.status().message() == "");
  plan->mutable_replicas(0)->mutable_stages(2)->mutable_workers(1)->set_kind("H100-SXM");
  flags.plan = Scratch("relabelled.json");
  std::ofstream(flags.plan) << *PlanJson(*plan);
  CHECK_THAT(std::string(SimulateFromFiles(flags).status().message()),
             Catch::Contains(
                 "relabelled.json: replica r0: device c/1 is a A4000, the plan says H100-SXM"));
}

}  // namespace tessera::deploy
