#include "worker/weights/checkpoint.h"

#include <map>
#include <span>
#include <system_error>
#include <utility>

#include "proto/file_text.h"
#include "proto/model/weight_files.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;

std::string ShapeText(absl::Span<const int64_t> shape) {
  std::string text = "[";
  for (int64_t size : shape) text = StrCat(text, text.size() > 1 ? ", " : "", size);
  return text + "]";
}

bool IsUsableType(std::string_view dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16";
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

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const fs::path& folder) {
  absl::StatusOr<std::vector<std::string>> names = WeightFiles(folder);
  if (!names.ok()) return names.status();
  auto checkpoint = std::make_unique<Checkpoint>();
  checkpoint->folder_ = folder;
  for (const std::string& name : *names) {
    auto file = SafetensorsFile::Open(folder / name);
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

bool Checkpoint::Has(std::string_view name) const { return tensors_.contains(std::string(name)); }

absl::StatusOr<CheckpointTensor> Checkpoint::Find(std::string_view name,
                                                  absl::Span<const int64_t> shape) const {
  auto tensor = FindShape(name, shape);
  if (!tensor.ok() || IsUsableType(tensor->entry->dtype)) return tensor;
  return absl::InvalidArgumentError(StrCat(tensor->Describe(), " is ", tensor->entry->dtype,
                                           "; only F32, F16 and BF16 weights are supported"));
}

absl::StatusOr<CheckpointTensor> Checkpoint::FindInt32(std::string_view name,
                                                       absl::Span<const int64_t> shape) const {
  auto tensor = FindShape(name, shape);
  if (!tensor.ok() || tensor->entry->dtype == "I32") return tensor;
  return absl::InvalidArgumentError(StrCat(tensor->Describe(), " is ", tensor->entry->dtype,
                                           "; packed int4 weights must be I32"));
}

absl::StatusOr<CheckpointTensor> Checkpoint::FindShape(std::string_view name,
                                                       absl::Span<const int64_t> shape) const {
  const auto found = tensors_.find(std::string(name));
  if (found == tensors_.end()) {
    return absl::NotFoundError(
        StrCat(folder_.string(), ": tensor '", name,
               "' is in none of its safetensors files; the checkpoint is "
               "incomplete, or of another architecture than config.json says"));
  }
  const CheckpointTensor& tensor = found->second;
  if (absl::MakeConstSpan(tensor.entry->shape) != shape) {
    return absl::InvalidArgumentError(StrCat(tensor.Describe(), " has the shape ",
                                             ShapeText(tensor.entry->shape),
                                             "; config.json asks for ", ShapeText(shape)));
  }
  return tensor;
}

}  // namespace tessera::worker
