#include "worker/weights/checkpoint.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <system_error>
#include <utility>

#include "kernels/half_floats.h"
#include "proto/file_text.h"
#include "proto/model/gguf_header.h"
#include "proto/model/weight_files.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;

// An element of that type, in the lowest bits.
float FloatOf(std::string_view dtype, uint32_t bits) {
  if (dtype == "F32") return kernels::FloatFromBits(bits);
  if (dtype == "F16") return kernels::ToFloat(kernels::Float16{static_cast<uint16_t>(bits)});
  if (dtype == "BF16") return kernels::ToFloat(kernels::BFloat16{static_cast<uint16_t>(bits)});
  if (dtype == "I8") return static_cast<float>(static_cast<int8_t>(bits));
  if (bits == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, static_cast<int>(bits) - 127);
}

}  // namespace

std::string CheckpointTensor::Describe() const {
  return StrCat(file->path().string(), ": tensor '", entry->name, "'");
}

kernels::DType DTypeOf(const CheckpointTensor& tensor) {
  if (tensor.entry->dtype == "BF16") return kernels::DType::kBF16;
  return tensor.entry->dtype == "F16" ? kernels::DType::kF16 : kernels::DType::kF32;
}

absl::Status ReadBlock(const CheckpointTensor& tensor, int64_t row_elements, const IndexRange& rows,
                       const IndexRange& columns, int64_t element_bytes, std::byte* out) {
  const int64_t stride = row_elements * element_bytes, bytes = columns.size() * element_bytes;
  const int64_t begin = tensor.entry->begin + rows.begin * stride + columns.begin * element_bytes;
  const auto place = [&](int64_t row, int64_t size) {
    return std::span(out + row * bytes, static_cast<size_t>(size));
  };
  if (bytes == stride) return tensor.file->Read(begin, place(0, rows.size() * bytes));
  absl::Status status;
  for (int64_t i = 0; i < rows.size() && status.ok(); ++i) {
    status = tensor.file->Read(begin + i * stride, place(i, bytes));
  }
  return status;
}

absl::Status ReadBlock(const CheckpointTensor& tensor, int64_t row_elements, const IndexRange& rows,
                       const IndexRange& columns, int64_t element_bytes,
                       std::vector<std::byte>* out) {
  out->resize(rows.size() * columns.size() * element_bytes);
  return ReadBlock(tensor, row_elements, rows, columns, element_bytes, out->data());
}

absl::Status ReadFloats(const CheckpointTensor& tensor, int64_t row_elements,
                        const IndexRange& rows, const IndexRange& columns,
                        std::vector<std::byte>* raw, float* out) {
  const std::string& dtype = tensor.entry->dtype;
  const int64_t bytes = dtype == "F32" ? 4 : dtype == "F16" || dtype == "BF16" ? 2 : 1;
  absl::Status read = ReadBlock(tensor, row_elements, rows, columns, bytes, raw);
  if (!read.ok()) return read;
  for (int64_t i = 0; i < rows.size() * columns.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, raw->data() + i * bytes, static_cast<size_t>(bytes));
    out[i] = FloatOf(dtype, bits);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const fs::path& folder) {
  absl::StatusOr<std::vector<fs::path>> paths = WeightFiles(folder);
  if (!paths.ok()) return paths.status();
  auto checkpoint = std::make_unique<Checkpoint>();
  checkpoint->folder_ = folder;
  for (const fs::path& path : *paths) {
    auto file = SafetensorsFile::Open(path);
    if (!file.ok()) return file.status();
    for (const SafetensorsEntry& entry : (*file)->entries()) {
      const CheckpointTensor tensor = {.file = file->get(), .entry = &entry};
      const auto [place, is_new] = checkpoint->tensors_.emplace(entry.name, tensor);
      if (!is_new) {
        return absl::InvalidArgumentError(
            StrCat(tensor.Describe(), " is in ", place->second.file->path().string(), " too"));
      }
    }
    checkpoint->files_.push_back(*std::move(file));
  }

  std::error_code error;
  const fs::path index = folder / kWeightsIndexFile;
  if (!fs::exists(index, error)) return checkpoint;
  absl::StatusOr<std::string> text = ReadFileText(index, kMaxIndexBytes);
  if (!text.ok()) return text.status();
  auto map = ParseWeightIndex(*text, index.string());
  if (!map.ok()) return map.status();
  for (const auto& [tensor, name] : *map) {
    const auto found = checkpoint->tensors_.find(tensor);
    if (found == checkpoint->tensors_.end() || found->second.file->path().filename() != name) {
      return absl::InvalidArgumentError(StrCat(index.string(), ": says that tensor '", tensor,
                                               "' is in ", name, ", but it is not there"));
    }
  }
  return checkpoint;
}

bool Checkpoint::is_gguf() const { return HasGgufName(folder_.string()); }

bool Checkpoint::Has(std::string_view name) const { return tensors_.contains(std::string(name)); }

absl::StatusOr<CheckpointTensor> Checkpoint::Find(std::string_view name,
                                                  absl::Span<const int64_t> shape) const {
  const auto found = ExpectFloat(*this, std::string(name), shape, true);
  if (!found.ok()) return found.status();
  return Get(std::string(name));
}

std::optional<StoredTensor> Checkpoint::FindTensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return std::nullopt;
  return StoredTensor{found->second.entry->dtype, found->second.entry->shape};
}

}  // namespace tessera::worker
