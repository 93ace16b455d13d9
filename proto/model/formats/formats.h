// The formats that weights are served from: how quantization_config is read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/json_reader.h"
#include "proto/model.pb.h"

namespace tessera {

// Fills model->quantization from quantization_config, where there is one. Methods and options that
// are not supported fail, with what to use instead.
void ReadQuantization(JsonReader& config, v1::Model* model);

// What can be served, a line a format; types of GGUF as "Q4_0, Q8_0"; and the name of a format.
std::vector<std::string_view> FormatTexts();
std::string GgufTypeTexts();
std::string_view FormatName(const v1::Quantization& quantization);

}  // namespace tessera
