// A published config.json -> v1::Model, for the families in proto/model/families.
//
// Understands the keys of transformers 4 (rope_theta, rope_scaling, torch_dtype) and 5
// (rope_parameters, dtype). What a key's absence means is taken from the family's own configuration
// class in transformers. Whatever would change the result and is not understood (another
// architecture, rope type, activation, quantisation) is refused by name. Pure, thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/json_reader.h"
#include "proto/model.pb.h"

namespace tessera {

// `file` is the path errors name. Model.name is left empty; eos_token_ids are those of this file.
// `notes`, where it is given, gets sentences that the user should hear.
absl::StatusOr<v1::Model> ParseModelConfig(std::string_view text, std::string_view file,
                                           std::vector<std::string>* notes = nullptr);

// Fails `config` for the class `name`, which is none of `known`: names the nearest of them and,
// where config.json is of a wrapper, the class of its text part.
void RefuseClass(JsonReader& config, std::string_view name,
                 absl::Span<const std::string_view> known);

// InvalidArgument naming `file`, the first id of model.eos_token_ids beyond the vocabulary, and its
// size: such an id would never end anything.
absl::Status CheckEosIds(const v1::Model& model, std::string_view file);

// "float32", "torch.bfloat16", ... UNSPECIFIED for an empty name; others fail at `key`.
v1::DataType ReadDataType(JsonReader& config, const char* key);

}  // namespace tessera
