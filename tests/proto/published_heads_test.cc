// Heads for further tokens of published models: the tensors that are looked for are those that are
// there, in their shapes.
#include <catch2/catch.hpp>
#include <cctype>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/file_text.h"
#include "proto/json_reader.h"
#include "proto/model/families/families.h"
#include "proto/model/model_config.h"
#include "proto/model/tensor_walk.h"

namespace tessera {
namespace {

using nlohmann::json;
using Shapes = std::map<std::string, std::vector<int64_t>>;

json ReadConfigs(const std::string& file) {
  const auto text = ReadFileText("tests/golden/configs/" + file, kMaxJsonBytes);
  REQUIRE(text.ok());
  const auto document = ParseJsonObject(*text, file);
  REQUIRE(document.ok());
  return *document;
}

// All experts have one name.
std::string WithoutNumber(std::string name) {
  const std::string before = ".experts.";
  const size_t begin = name.find(before);
  if (begin == std::string::npos) return name;
  size_t end = begin + before.size();
  const size_t number = end;
  while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) ++end;
  return end == number ? name : name.replace(number, end - number, "*");
}

struct Head {
  Shapes tensors;
  int64_t elements = 0;
};

// What is looked for where the files have the tensor `stacked` of stacked experts, in the head or
// anywhere else, or none.
Head TensorsOf(const v1::Model& model, const std::string& stacked) {
  const TensorNames& family = FindFamily(model.architecture())->tensors;
  const std::string_view root = "model.";
  const TensorNames names = NamesIn(
      model, family, [&](const std::string& name) { return name == stacked; }, root);
  Head head;
  std::map<std::string, bool> counted;
  const absl::Status walked = WalkDraftHead(model, names, root, [&](const ModelTensor& tensor) {
    if (tensor.role == TensorRole::kEmbedding) return absl::OkStatus();
    for (const TensorPart& part : tensor.parts) {
      const std::string name = WeightsOf(part);
      head.tensors[WithoutNumber(name)] = part.shape;
      int64_t elements = 1;
      for (const int64_t size : part.shape) elements *= size;
      if (counted.emplace(name, true).second) head.elements += elements;
      if (tensor.bias) head.tensors[BiasOf(part)] = {part.shape[0]};
    }
    return absl::OkStatus();
  });
  CHECK(walked.message() == "");
  return head;
}

v1::Model ModelOf(const json& head, const json& catalogue) {
  json config =
      head.contains("config") ? head["config"] : catalogue.at(head["of"].get<std::string>());
  config.merge_patch(head["sets"]);
  const auto model = ParseModelConfig(config.dump(), "config.json");
  REQUIRE(model.status().message() == "");
  return *model;
}

}  // namespace

TEST_CASE("heads of published models have the tensors that are looked for") {
  const json catalogue = ReadConfigs("catalogue.json").at("configs");
  const json heads = ReadConfigs("heads.json").at("heads");
  CHECK(heads.size() >= 8);
  for (const auto& [name, published] : heads.items()) {
    INFO(name);
    const v1::Model model = ModelOf(published, catalogue);
    REQUIRE(model.has_draft_head());
    const Head head = TensorsOf(model, published.value("stacked", ""));
    for (const auto& [tensor, shape] : published["tensors"].items()) {
      INFO(tensor);
      REQUIRE(head.tensors.contains(tensor));
      CHECK(json(head.tensors.at(tensor)) == shape);
    }
    for (const auto& [tensor, shape] : head.tensors) {
      INFO(tensor);
      CHECK(published["tensors"].contains(tensor));
    }
    for (const json& copy : published["shared"]) CHECK_FALSE(head.tensors.contains(copy));
    if (published.contains("elements")) CHECK(json(head.elements) == published["elements"]);
  }
}

// Quantised checkpoints number the model's experts, and leave the head as it was published.
TEST_CASE("a head's experts are stacked or not, whatever the model's are") {
  const json catalogue = ReadConfigs("catalogue.json").at("configs");
  const json heads = ReadConfigs("heads.json").at("heads");
  const v1::Model model = ModelOf(heads["Qwen3.6-35B-A3B"], catalogue);
  const std::string stacked = "mtp.layers.0.mlp.experts.gate_up_proj";
  const std::string of_model = "model.layers.0.mlp.experts.gate_up_proj";
  CHECK(TensorsOf(model, stacked).tensors.contains(stacked));
  CHECK_FALSE(TensorsOf(model, of_model).tensors.contains(stacked));
  CHECK(TensorsOf(model, of_model).tensors.contains("mtp.layers.0.mlp.experts.*.up_proj.weight"));
}

}  // namespace tessera
