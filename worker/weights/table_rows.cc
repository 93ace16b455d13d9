#include "worker/weights/table_rows.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "proto/json_reader.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

constexpr int64_t kMaxBlock = int64_t{1} << 20;
constexpr int64_t kMaxStateBytes = 4096;
constexpr double kMaxOffset = 1e6;

int64_t CountOf(const CheckpointTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.entry->shape) count *= size;
  return count;
}

// What the JSON text beside the codes says.
struct State {
  int64_t block = 0;         // weights that share a scale
  int64_t nested_block = 0;  // scales that share one; 0: they are floats
  float offset = 0;          // of scales
};

absl::StatusOr<State> ReadState(const CheckpointTensor& tensor) {
  const int64_t size = CountOf(tensor);
  if (size > kMaxStateBytes) {
    return absl::InvalidArgumentError(
        StrCat(tensor.Describe(), " has ", size, " bytes, more than ", kMaxStateBytes));
  }
  std::vector<std::byte> bytes;
  absl::Status read = ReadBlock(tensor, size, {0, 1}, {0, size}, 1, &bytes);
  if (!read.ok()) return read;
  const std::string place = tensor.Describe();
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto document = ParseJsonObject(text, place);
  if (!document.ok()) return document.status();
  JsonReader reader(*document, place);
  State state;
  state.block = reader.Integer("blocksize", 1, kMaxBlock);
  if (reader.Has("nested_blocksize")) {
    state.nested_block = reader.Integer("nested_blocksize", 1, kMaxBlock);
    state.offset = static_cast<float>(reader.NumberOr("nested_offset", 0, -kMaxOffset, kMaxOffset));
  }
  if (!reader.ok()) return reader.status();
  return state;
}

absl::StatusOr<std::vector<float>> ReadTable(const CheckpointTensor& tensor) {
  const int64_t count = CountOf(tensor);
  std::vector<float> values(static_cast<size_t>(count));
  std::vector<std::byte> raw;
  absl::Status read = ReadFloats(tensor, count, {0, 1}, {0, count}, &raw, values.data());
  if (!read.ok()) return read;
  for (const float value : values) {
    if (std::isfinite(value)) continue;
    return absl::InvalidArgumentError(
        StrCat(tensor.Describe(), " holds what is not finite; the checkpoint is damaged"));
  }
  return values;
}

struct Tables {
  State state;
  std::vector<float> values;                        // by code
  std::vector<float> nested_scales, nested_values;  // of codes of scales; empty: they are floats
};

class TableRows : public RowSource {
 public:
  TableRows(const Checkpoint& checkpoint, const StoredMatrix& matrix, Tables tables)
      : matrix_(matrix),
        codes_(checkpoint.Get(matrix.codes)),
        scales_(checkpoint.Get(matrix.scales)),
        tables_(std::move(tables)) {}

  std::string Describe() const override { return codes_.Describe(); }
  absl::StatusOr<RowForm> FormOf(const IndexRange& /*columns*/) const override { return RowForm{}; }
  int64_t code_bits() const override { return matrix_.bits; }

  // Whole rows follow each other.
  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& /*form*/,
                    RowScratch* scratch, std::byte* out) const override {
    auto* values = reinterpret_cast<float*>(out);
    const int64_t width = matrix_.columns;
    if (columns.size() == width) {
      return ReadFlat({rows.begin * width, rows.end * width}, scratch, values);
    }
    absl::Status status;
    for (int64_t row = rows.begin; row < rows.end && status.ok(); ++row) {
      status = ReadFlat({row * width + columns.begin, row * width + columns.end}, scratch, values);
      values += columns.size();
    }
    return status;
  }

 private:
  // Weights by their place in the whole matrix.
  absl::Status ReadFlat(const IndexRange& weights, RowScratch* scratch, float* out) const {
    std::vector<std::byte>& codes = scratch->parts[0];
    const IndexRange bytes = {weights.begin / 2, (weights.end + 1) / 2};
    absl::Status read = ReadBlock(codes_, CountOf(codes_), {0, 1}, bytes, 1, &codes);
    if (!read.ok()) return read;
    const int64_t block = tables_.state.block;
    const IndexRange blocks = {weights.begin / block, (weights.end - 1) / block + 1};
    scratch->parts[2].resize(static_cast<size_t>(blocks.size()) * sizeof(float));
    auto* scales = reinterpret_cast<float*>(scratch->parts[2].data());
    if (read = ReadScales(blocks, &scratch->parts[1], scales); !read.ok()) return read;
    for (int64_t i = weights.begin; i < weights.end; ++i) {
      const auto byte = std::to_integer<uint32_t>(codes[i / 2 - bytes.begin]);
      const uint32_t code = i % 2 == 0 ? byte >> 4 : byte & 15;
      *out++ = tables_.values[code] * scales[i / block - blocks.begin];
    }
    return absl::OkStatus();
  }

  absl::Status ReadScales(const IndexRange& blocks, std::vector<std::byte>* raw,
                          float* scales) const {
    const int64_t count = CountOf(scales_);
    const bool nested = !tables_.nested_scales.empty();
    absl::Status read = nested ? ReadBlock(scales_, count, {0, 1}, blocks, 1, raw)
                               : ReadFloats(scales_, count, {0, 1}, blocks, raw, scales);
    if (!read.ok()) return read;
    for (int64_t i = 0; i < blocks.size(); ++i) {
      if (nested) {
        const int64_t outer = (blocks.begin + i) / tables_.state.nested_block;
        const auto code = std::to_integer<size_t>((*raw)[static_cast<size_t>(i)]);
        scales[i] = tables_.nested_values[code] * tables_.nested_scales[static_cast<size_t>(outer)];
        scales[i] += tables_.state.offset;
      }
      if (std::isfinite(scales[i])) continue;
      return absl::InvalidArgumentError(StrCat("the scale of block ", blocks.begin + i,
                                               " is not finite; the checkpoint is damaged"));
    }
    return absl::OkStatus();
  }

  const StoredMatrix matrix_;
  const CheckpointTensor codes_, scales_;
  const Tables tables_;
};

// Blocks that so many numbers fill, the last perhaps not whole.
int64_t Blocks(int64_t count, int64_t block) { return (count + block - 1) / block; }

}  // namespace

absl::StatusOr<std::shared_ptr<const RowSource>> OpenTable(const Checkpoint& checkpoint,
                                                           const v1::Quantization& /*quantization*/,
                                                           std::string_view /*name*/,
                                                           const StoredMatrix& matrix) {
  Tables tables;
  const CheckpointTensor& state = checkpoint.Get(matrix.state);
  auto read = ReadState(state);
  if (!read.ok()) return read.status();
  tables.state = *read;
  auto values = ReadTable(checkpoint.Get(matrix.codes + ".quant_map"));
  if (!values.ok()) return values.status();
  tables.values = *std::move(values);
  const CheckpointTensor& scales = checkpoint.Get(matrix.scales);
  bool fits = CountOf(scales) == Blocks(matrix.rows * matrix.columns, tables.state.block) &&
              (scales.entry->dtype == "U8") == (tables.state.nested_block > 0);
  if (fits && tables.state.nested_block > 0) {
    values = ReadTable(checkpoint.Get(matrix.codes + ".nested_quant_map"));
    if (!values.ok()) return values.status();
    tables.nested_values = *std::move(values);
    values = ReadTable(checkpoint.Get(matrix.codes + ".nested_absmax"));
    if (!values.ok()) return values.status();
    tables.nested_scales = *std::move(values);
    fits = std::ssize(tables.nested_scales) == Blocks(CountOf(scales), tables.state.nested_block);
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        StrCat(state.Describe(), " says other sizes of blocks than '", matrix.scales, "' has"));
  }
  return std::make_shared<TableRows>(checkpoint, matrix, std::move(tables));
}

}  // namespace tessera::worker
