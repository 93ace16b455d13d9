#include "proto/model/formats/format.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr std::string_view kFloats[] = {"F32", "F16", "BF16"};

}  // namespace

bool IsFloat(std::string_view dtype) {
  return std::find(std::begin(kFloats), std::end(kFloats), dtype) != std::end(kFloats);
}

std::string NotFloat(bool announced) {
  return StrCat(announced ? "" : ", and config.json has no quantization_config",
                ": weights must be F32, F16 or BF16, or codes of a format that quantization_config "
                "names",
                kOtherCheckpoint);
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  std::string text;
  for (const int64_t size : shape) text = StrCat(text, text.empty() ? "" : ", ", size);
  return StrCat("[", text, "]");
}

void RefuseKey(JsonReader& reader, const char* key, std::string_view why) {
  if (!reader.Has(key)) return;
  const nlohmann::json& value = reader.At(key);
  if (value == false || (value.is_structured() && value.empty())) return;
  reader.Fail(key, StrCat("is set: ", why, kOtherCheckpoint));
}

absl::StatusOr<StoredTensor> ExpectTensor(const TensorDirectory& tensors, const std::string& name,
                                          absl::Span<const int64_t> shape,
                                          absl::Span<const std::string_view> dtypes,
                                          std::string_view why) {
  const std::optional<StoredTensor> tensor = tensors.FindTensor(name);
  if (!tensor.has_value()) {
    return absl::NotFoundError(
        StrCat(tensors.Place(), ": tensor '", name,
               "' is in none of its safetensors files; the checkpoint is incomplete, or of "
               "another architecture than config.json says"));
  }
  if (tensor->shape != shape) {
    return absl::InvalidArgumentError(StrCat(tensors.DescribeTensor(name), " has the shape ",
                                             ShapeText(tensor->shape), "; config.json asks for ",
                                             ShapeText(shape)));
  }
  if (std::find(dtypes.begin(), dtypes.end(), tensor->dtype) != dtypes.end()) return *tensor;
  return absl::InvalidArgumentError(
      StrCat(tensors.DescribeTensor(name), " is ", tensor->dtype, why));
}

absl::StatusOr<StoredTensor> ExpectFloat(const TensorDirectory& tensors, const std::string& name,
                                         absl::Span<const int64_t> shape, bool announced) {
  return ExpectTensor(tensors, name, shape, kFloats, NotFloat(announced));
}

}  // namespace tessera
