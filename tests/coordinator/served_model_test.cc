// What the coordinator makes of a model's folder at start, before any worker is told of it.
#include "coordinator/served_model.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/logged_lines.h"
#include "tests/temporary_folder.h"

namespace tessera::coordinator {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The model that ships (tied embeddings), with its tensors changed.
class ChangedModel {
 public:
  explicit ChangedModel(const std::function<void(json& header, std::string& data)>& change) {
    for (const auto& entry : fs::directory_iterator("deploy/demo_model/tessera-demo")) {
      fs::copy_file(entry.path(), folder_.path() / entry.path().filename());
    }
    const fs::path path = folder_.path() / "model.safetensors";
    std::ifstream in(path, std::ios::binary);
    const std::string file((std::istreambuf_iterator<char>(in)), {});
    uint64_t size = 0;
    for (int i = 7; i >= 0; --i) size = size << 8 | static_cast<uint8_t>(file[i]);
    json header = json::parse(file.substr(8, size));
    std::string data = file.substr(8 + size);
    change(header, data);
    const std::string text = header.dump();
    std::string prefix;
    for (int i = 0; i < 8; ++i) prefix += static_cast<char>(text.size() >> (8 * i) & 0xff);
    fs::remove(path);
    folder_.Write("model.safetensors", prefix + text + data);
  }

  absl::StatusOr<LoadedModel> Load() const {
    CoordinatorOptions options;
    options.model = folder_.path().string();
    return LoadModel(options, /*now_unix_seconds=*/0);
  }

 private:
  tests::TemporaryFolder folder_;
};

constexpr char kTable[] = "model.embed_tokens.weight";

// A head of its own: the embedding's bytes, the last one of them changed by `difference`.
void AddHead(json& header, std::string& data, int difference) {
  const size_t begin = header[kTable]["data_offsets"][0], end = header[kTable]["data_offsets"][1];
  header["lm_head.weight"] = header[kTable];
  header["lm_head.weight"]["data_offsets"] = {data.size(), data.size() + (end - begin)};
  data += data.substr(begin, end - begin);
  data.back() = static_cast<char>(data.back() + difference);
}

}  // namespace

TEST_CASE("workers are told that embeddings are tied where the files agree, else not") {
  for (const int difference : {0, 1}) {
    CAPTURE(difference);
    const tests::LoggedLines log("coordinator");
    const ChangedModel model(
        [&](json& header, std::string& data) { AddHead(header, data, difference); });
    const auto loaded = model.Load();
    INFO(loaded.status().ToString());
    REQUIRE(loaded.ok());
    CHECK(loaded->configure.model().tied_embeddings() == (difference == 0));
    CHECK(log.Count("'lm_head.weight' differs from") == difference);
  }
}

TEST_CASE("types that workers do not read are refused at start") {
  const ChangedModel model([](json& header, std::string&) {
    header[kTable]["dtype"] = "F8_E4M3";
    const int64_t width = header[kTable]["shape"][1];
    header[kTable]["shape"][1] = 2 * width;  // as many bytes
  });
  const auto loaded = model.Load();
  CHECK(loaded.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(loaded.status().message()),
             Catch::Contains("tensor 'model.embed_tokens.weight' is F8_E4M3"));
}

TEST_CASE("a tensor that nobody reads is named in the log") {
  const tests::LoggedLines log("coordinator");
  const ChangedModel model([](json& header, std::string& data) {
    header["model.layers.0.self_attn.q_proj.bias"] = {
        {"dtype", "U8"}, {"shape", {2}}, {"data_offsets", {data.size(), data.size() + 2}}};
    data += "xx";
  });
  REQUIRE(model.Load().ok());
  CHECK(log.Count("1 tensor is left out") == 1);
  CHECK(log.Count("model.layers.*.self_attn.q_proj.bias") == 1);
}

}  // namespace tessera::coordinator
