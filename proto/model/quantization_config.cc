// quantization_config as AutoAWQ, AutoGPTQ and GPTQModel write it.
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/ascii.h"
#include "proto/model/model_config.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr int64_t kGroupUnit = 8, kMaxGroup = int64_t{1} << 22;
constexpr const char* kWayOut =
    "; use an AWQ or GPTQ checkpoint of 4 bits, or the original one, with --quantization int8 if "
    "memory is short";

void ReadAwq(JsonReader& reader, v1::Quantization* quantization) {
  quantization->set_format(v1::WEIGHT_FORMAT_AWQ);
  if (!reader.BoolOr("zero_point", true)) {
    reader.Fail("zero_point", StrCat("false is not supported", kWayOut));
  }
  const std::string version = absl::AsciiStrToLower(reader.StringOr("version", "gemm"));
  if (version != "gemm") {
    reader.Fail("version", StrCat("'", version,
                                  "' packs weights in another order; of AWQ only 'gemm' is "
                                  "supported",
                                  kWayOut));
  }
}

void ReadGptq(JsonReader& reader, v1::Quantization* quantization) {
  quantization->set_format(v1::WEIGHT_FORMAT_GPTQ);
  if (reader.BoolOr("desc_act", false)) {
    reader.Fail("desc_act", StrCat("true (act-order) is not supported: inputs that share a scale "
                                   "must be neighbours",
                                   kWayOut));
  }
  const std::string format = reader.StringOr("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2") {
    reader.Fail("checkpoint_format",
                StrCat("'", format, "' is not supported; known are gptq and ", "gptq_v2", kWayOut));
  }
  quantization->set_zeros_less_one(format == "gptq");
}

// The key that the object has, of two spellings; both must not stand there with other values.
const char* OneOf(JsonReader& reader, const char* key, const char* other) {
  if (!reader.Has(other)) return key;
  if (reader.Has(key) && reader.At(key) != reader.At(other)) {
    reader.Fail(key, StrCat("and ", other, " say different things: remove one of them"));
  }
  return other;
}

}  // namespace

void ReadQuantization(JsonReader& config, v1::Model* model) {
  constexpr const char* kKey = "quantization_config";
  if (!config.Has(kKey)) return;
  if (!config.At(kKey).is_object()) {
    config.Fail(kKey, "must be an object");
    return;
  }
  JsonReader reader(config.At(kKey), config.file(), "quantization_config.");
  v1::Quantization quantization;
  const std::string method = reader.StringOr("quant_method", "");
  if (method == "awq") {
    ReadAwq(reader, &quantization);
  } else if (method == "gptq") {
    ReadGptq(reader, &quantization);
  } else {
    reader.Fail("quant_method", StrCat("'", method.substr(0, 60), "' is not supported", kWayOut));
  }
  // AWQ's own tools wrote the second of each.
  const char* bits_key = OneOf(reader, "bits", "w_bit");
  const int64_t bits = reader.Integer(bits_key, 1, 32);
  if (reader.ok() && bits != 4) {
    reader.Fail(bits_key, StrCat(bits, " is not supported: int4 is", kWayOut));
  }
  const char* group_key = OneOf(reader, "group_size", "q_group_size");
  const int64_t group = reader.IntegerOr(group_key, 128, -1, kMaxGroup);
  if (reader.ok() && group != -1 && (group < 1 || group % kGroupUnit != 0)) {
    reader.Fail(group_key, StrCat(group, " is not supported; it must be -1 (all inputs), or a ",
                                  "multiple of ", kGroupUnit));
  }
  config.Adopt(reader.status());
  if (!config.ok()) return;
  quantization.set_group_size(static_cast<int32_t>(group == -1 ? 0 : group));
  *model->mutable_quantization() = quantization;
}

}  // namespace tessera
