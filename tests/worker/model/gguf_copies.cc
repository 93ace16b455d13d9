#include "tests/worker/model/gguf_copies.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <utility>

#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "tests/fakes/gguf_file.h"
#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

using nlohmann::json;
using tests::GgufKey;

// Names of layers' tensors that all families here have, without and with their ends.
const std::map<std::string, std::string> kNames = {
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"self_attn.gate_proj", "attn_gate"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"linear_attn.in_proj_qkv", "attn_qkv"},
    {"linear_attn.in_proj_z", "attn_gate"},
    {"linear_attn.in_proj_b", "ssm_beta"},
    {"linear_attn.in_proj_a", "ssm_alpha"},
    {"linear_attn.in_proj_ba", "ssm_ba"},
    {"linear_attn.conv1d", "ssm_conv1d"},
    {"linear_attn.A_log", "ssm_a"},
    {"linear_attn.dt_bias", "ssm_dt.bias"},
    {"linear_attn.norm", "ssm_norm"},
    {"linear_attn.out_proj", "ssm_out"}};

// Tensors of all experts, gate and up in one, or down; or of one, in the order of numbers below
// ten.
void PutExperts(const std::string& name, const std::string& block, const Numbers& tensor,
                Tensors* out) {
  const std::string part = name.substr(name.rfind('.') + 1);
  const auto place = [&](const std::string& kind) -> Numbers& {
    return (*out)[block + "ffn_" + kind + "_exps.weight"];
  };
  if (part == "gate_up_proj") {
    const int64_t count = tensor.shape[0], half = tensor.shape[1] / 2, in = tensor.shape[2];
    const Numbers rows = {{2 * count * half, in}, tensor.values};
    for (int64_t i = 0; i < 2 * count; ++i) {
      Append(RowsOf(rows, i * half, (i + 1) * half), &place(i % 2 == 0 ? "gate" : "up"));
    }
    place("gate").shape = place("up").shape = {count, half, in};
    return;
  }
  Numbers more = tensor;
  if (more.shape.size() == 2) more.shape.insert(more.shape.begin(), 1);
  Append(more, &place(part.substr(0, part.find('_'))));
}

}  // namespace

Tensors ReadTensors(const std::string& name) {
  Tensors tensors;
  const auto file = SafetensorsFile::Open(GoldenFolder(name) / "model.safetensors");
  REQUIRE(file.ok());
  for (const SafetensorsEntry& entry : (*file)->entries()) {
    tensors[entry.name] = {entry.shape, FloatsOf(**file, entry)};
  }
  return tensors;
}

json ReadConfig(const std::string& name) {
  std::ifstream file(GoldenFolder(name) / "config.json");
  return json::parse(file);
}

// Rows [begin, end) of the first dimension.
Numbers RowsOf(const Numbers& all, int64_t begin, int64_t end) {
  Numbers rows = all;
  const int64_t width = all.Size() / all.shape[0];
  rows.shape[0] = end - begin;
  rows.values.assign(all.values.begin() + begin * width, all.values.begin() + end * width);
  return rows;
}

void Append(const Numbers& more, Numbers* all) {
  if (all->shape.empty()) {
    *all = more;
    return;
  }
  all->shape[0] += more.shape[0];
  all->values.insert(all->values.end(), more.values.begin(), more.values.end());
}

Numbers Turned(const Numbers& matrix) {
  const int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  Numbers turned = {{columns, rows}, std::vector<float>(matrix.values.size())};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      turned.values[static_cast<size_t>(c * rows + r)] =
          matrix.values[static_cast<size_t>(r * columns + c)];
    }
  }
  return turned;
}

std::string RealKey(const std::string& name, double value) {
  const auto real = static_cast<float>(value);
  std::string bytes(sizeof(real), '\0');
  std::memcpy(bytes.data(), &real, sizeof(real));
  return GgufKey(name, tests::kGgufF32, bytes);
}

void PutUnderGgufName(const std::string& name, const std::string& block, Numbers tensor,
                      Tensors* out) {
  const std::string& found = kNames.at(name);
  const bool whole = name.ends_with("A_log") || found.ends_with(".bias");
  (*out)[block + found + (whole ? "" : ".weight")] = std::move(tensor);
}

Tensors InGguf(const Tensors& checkpoint, const Transform& transform, float added,
               const std::string& root) {
  Tensors out;
  Numbers norm = checkpoint.at(root + "norm.weight");
  for (float& value : norm.values) value += added;
  out["output_norm.weight"] = std::move(norm);
  for (const auto& [whole, tensor] : checkpoint) {
    if (whole == root + "embed_tokens.weight") out["token_embd.weight"] = tensor;
    if (whole == "lm_head.weight") out["output.weight"] = tensor;
    const std::string prefix = root + "layers.";
    if (!whole.starts_with(prefix)) continue;
    const size_t dot = whole.find('.', prefix.size());
    const std::string block = "blk." + whole.substr(prefix.size(), dot - prefix.size()) + ".";
    std::string name = whole.substr(dot + 1);
    if (name.ends_with(".weight")) name.resize(name.size() - 7);
    if (name.find("mlp.experts.") == std::string::npos) {
      transform(name, block, tensor, &out);
    } else {
      PutExperts(name, block, tensor, &out);
    }
  }
  return out;
}

std::vector<std::string> CommonKeys(const std::string& arch, const json& config) {
  const auto key = [&](const char* name, const char* of_config) {
    return GgufKey(arch + "." + name, config.at(of_config).get<uint32_t>());
  };
  std::vector<std::string> keys = {
      tests::GgufTextKey("general.architecture", arch),
      key("block_count", "num_hidden_layers"),
      key("context_length", "max_position_embeddings"),
      key("embedding_length", "hidden_size"),
      key("feed_forward_length", "intermediate_size"),
      key("attention.head_count", "num_attention_heads"),
      RealKey(arch + ".attention.layer_norm_rms_epsilon", config.at("rms_norm_eps")),
      RealKey(arch + ".rope.freq_base", config.at("rope_parameters").at("rope_theta"))};
  if (config.contains("moe_intermediate_size")) {
    const char* experts = config.contains("num_experts") ? "num_experts" : "n_routed_experts";
    keys.push_back(key("expert_count", experts));
    keys.push_back(key("expert_used_count", "num_experts_per_tok"));
    keys.push_back(key("expert_feed_forward_length", "moe_intermediate_size"));
  }
  return keys;
}

void WriteCheckpoint(const tests::TemporaryFolder& folder, const std::string& place,
                     const json& config, const Tensors& tensors) {
  folder.Write(place + "config.json", config.dump());
  json header = json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.values.data()),
                tensor.values.size() * sizeof(float));
    header[name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  folder.Write(place + "model.safetensors", tests::GgufNumber(text.size(), 8) + text + data);
}

Copies::Copies(const std::string& golden, const json& config, const Tensors& tensors)
    : golden_(golden) {
  WriteCheckpoint(folder_, "hf/", config, tensors);
}

void Copies::WriteGguf(const std::vector<std::string>& keys, const Tensors& tensors) const {
  std::vector<tests::GgufTensorAt> places;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    places.push_back({name, {tensor.shape.rbegin(), tensor.shape.rend()}, 0, data.size()});
    const size_t begin = data.size(), bytes = tensor.values.size() * sizeof(float);
    data.resize((begin + bytes + 31) / 32 * 32);
    std::memcpy(data.data() + begin, tensor.values.data(), bytes);
  }
  folder_.Write("model.gguf", tests::GgufBytes(keys, places, 0) + data);
}

void Copies::Check(std::optional<bool> paired) const {
  auto in_folder = ReadModelFolder(folder().string());
  const auto in_file = ReadModelFolder(file().string());
  INFO(in_folder.status().ToString() << in_file.status().ToString());
  REQUIRE(in_folder.ok());
  REQUIRE(in_file.ok());
  for (v1::LayerKind& kind : *in_folder->mutable_kinds()) {
    if (paired) kind.mutable_attention()->mutable_rope()->set_neighbour_pairs(*paired);
  }
  CHECK(SameLayers(*in_folder, *in_file));
  for (const kernels::Isa isa : kernels::SupportedIsas(kernels::DetectCpuFeatures())) {
    TinyModel expected(folder(), {.isa = isa}), found(file(), {.isa = isa});
    for (const GoldenRun& run : ReadGolden(golden_)) {
      const auto tokens = static_cast<int64_t>(run.prompt.size());
      const std::vector<Chunk> chunks = {{.tokens = run.prompt, .prompt_tokens = tokens}};
      const auto a = expected.Run(chunks), b = found.Run(chunks);
      for (size_t i = 0; i < a.size(); ++i) CHECK(RelativeError(b[i], a[i]) < 1e-5);
    }
  }
}

}  // namespace tessera::worker
