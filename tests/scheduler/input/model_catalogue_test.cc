// Models that are known by name have the shapes that their families read from config.json.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "proto/file_text.h"
#include "proto/json_reader.h"
#include "proto/model/model_config.h"
#include "scheduler/cost/model_shape.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/held_codes.h"

namespace tessera::scheduler {
namespace {

nlohmann::json ReadConfigs(const std::string& file) {
  const auto text = ReadFileText("tests/golden/configs/" + file, kMaxJsonBytes);
  REQUIRE(text.ok());
  const auto document = ParseJsonObject(*text, file);
  REQUIRE(document.ok());
  return *document;
}

// What plans depend on.
void CheckAlike(const v1::Model& built_in, const nlohmann::json& config) {
  const auto parsed = ParseModelConfig(config.dump(), built_in.name());
  REQUIRE(parsed.status().message() == "");
  const auto known = MakeModelShape(built_in), read = MakeModelShape(*parsed);
  REQUIRE(known.status().message() == "");
  REQUIRE(read.status().message() == "");
  CHECK(known->layers == read->layers);
  CHECK(known->hidden == read->hidden);
  CHECK(known->vocabulary == read->vocabulary);
  CHECK(known->max_positions == read->max_positions);
  CHECK(known->tied_embeddings == read->tied_embeddings);
  CHECK(built_in.dtype() == parsed->dtype());
  REQUIRE(known->layers == read->layers);
  for (int layer = 0; layer < known->layers; ++layer) {
    INFO("layer " << layer);
    CHECK(known->layer(layer) == read->layer(layer));
    CHECK(known->window(layer) == read->window(layer));
  }
  CHECK(TotalParameters(*known) == TotalParameters(*read));
  CHECK(KvBytesPerToken(*known) == KvBytesPerToken(*read));
  CHECK(SequenceBytes(*known, 10000) == SequenceBytes(*read, 10000));
  CHECK(MaxWidth(*known) == MaxWidth(*read));
}

}  // namespace

TEST_CASE("models by name have the shapes of their published configurations") {
  const nlohmann::json catalogue = ReadConfigs("catalogue.json");
  const nlohmann::json& configs = catalogue.at("configs");
  int compared = 0;
  const auto compare = [&](const std::string& name, const nlohmann::json& config) {
    INFO(name);
    const auto model = BuiltInModel(name);
    REQUIRE(model.status().message() == "");
    CheckAlike(*model, config);
    ++compared;
  };
  for (const auto& [name, config] : configs.items()) compare(name, config);
  for (const auto& [name, other] : catalogue.at("same").items())
    compare(name, configs.at(other.get<std::string>()));
  const nlohmann::json others = ReadConfigs("public.json");
  for (const auto& [name, config] : others.at("configs").items()) {
    const size_t dashes = name.find("--");  // behind the publisher's name
    const std::string own = dashes == std::string::npos ? name : name.substr(dashes + 2);
    if (BuiltInModel(own).ok()) compare(own, config);
  }
  CHECK(compared >= 30);
}

TEST_CASE(
    "gpt-oss is planned as workers hold it: experts as codes of a byte, of four bits on GPUs, the "
    "rest in 16 bits") {
  const auto model = BuiltInModel("gpt-oss-120B");
  REQUIRE(model.ok());
  const auto shape = MakeModelShape(*model);
  REQUIRE(shape.ok());
  const double experts = 36.0 * 128 * 3 * 2880 * 2880;
  const double rest = TotalParameters(*shape) - experts;
  CHECK(TotalWeightBytes(*shape) == Approx(1.125 * experts + 2 * rest).epsilon(0.002));
  CHECK(shape->matrix_type == WeightType::kInt8);
  CHECK(shape->plain_type == WeightType::kHalf);

  // GPUs keep four bits of a code.
  v1::Cluster cluster;
  v1::Machine& machine = *cluster.add_machines();
  machine.add_devices()->set_kind("L4");
  REQUIRE(KeepsFourBits(cluster, *model));
  v1::Model held = *model;
  HoldFourBits(&held);
  const auto four_bits = MakeModelShape(held);
  CHECK(TotalWeightBytes(*four_bits) == Approx(0.625 * experts + 2 * rest).epsilon(0.002));
  CHECK(four_bits->matrix_type == WeightType::kMxfp4);
  CHECK_FALSE(KeepsFourBits(cluster, held));
  CHECK_FALSE(KeepsFourBits(cluster, *BuiltInModel("Llama-3-8B")));
  machine.add_devices()->set_kind("cpu-12mib");
  CHECK_FALSE(KeepsFourBits(cluster, *model));
}

}  // namespace tessera::scheduler
