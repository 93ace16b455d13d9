// The architectures that workers can run: under which names a checkpoint of each keeps its tensors.
//
// What a family computes is in v1::Model, filled by proto/model_config; names are all that is left.
// Adding an architecture: an entry here, one in proto/model_config.cc, and code for what is really
// new. Immutable, thread-safe.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera {

// Names without ".weight" and ".bias"; empty: the family has no such tensor.
struct TensorNames {
  // Prefixes of everything but the head; the one under which the embedding stands is used, because
  // checkpoints saved without the head's class lack its prefix.
  std::array<std::string_view, 2> roots = {};
  std::string_view embedding = {};
  std::string_view positions = {};
  std::string_view project_in = {};
  std::string_view project_out = {};
  std::string_view final_norm = {};
  std::string_view head = {};  // from no root
  std::string_view layers = {};
  // Below: relative to "<root><layers>.<index>."
  std::string_view attention_norm = {};
  std::string_view q = {}, k = {}, v = {}, o = {};
  std::string_view q_norm = {}, k_norm = {};
  std::string_view ffn_norm = {};
  std::string_view gate = {}, up = {}, down = {};
  std::string_view router = {};
  std::string_view experts = {};  // "<experts>.<index>." is the prefix of the next three
  std::string_view expert_gate = {}, expert_up = {}, expert_down = {};
};

struct Architecture {
  std::string_view name;  // as in config.json
  TensorNames tensors;
};

// The root under which the embedding stands; `has` tells whether a tensor is in the checkpoint.
std::string_view RootOf(const TensorNames& names,
                        const std::function<bool(const std::string&)>& has);

// InvalidArgument naming the architecture and the known ones.
absl::StatusOr<const Architecture*> FindArchitecture(std::string_view name);

}  // namespace tessera
