#include "worker/weights/code_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/int4_rows.h"
#include "proto/activations.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

using kernels::DType;

constexpr int64_t kMinGroup = 8;  // below, words weigh as much as codes
constexpr int64_t kWordBits = 32;

// Int4GroupInputs of what the checkpoint gives, cut so that the slice begins between groups.
absl::StatusOr<int64_t> GroupOfSlice(int64_t given, std::string_view name, int64_t all_columns,
                                     const IndexRange& columns) {
  if (given >= all_columns) return Int4GroupInputs(0);  // one group: it may be cut anywhere
  const int64_t group = std::gcd(Int4GroupInputs(given), columns.begin);
  if (group >= kMinGroup) return group;
  return absl::InvalidArgumentError(
      StrCat("worker share: inputs [", columns.begin, ", ", columns.end, ") of '", name,
             "' begin within a group of ", given,
             " int4 weights that share a scale; let the share begin at a multiple of ", kMinGroup,
             " inputs at least, such as by fewer ranks"));
}

template <typename T>
T* Sized(std::vector<std::byte>* bytes, int64_t count) {
  bytes->resize(static_cast<size_t>(count) * sizeof(T));
  return reinterpret_cast<T*>(bytes->data());
}

// Values of kBits each, from bit `bit` on.
template <int kBits>
void Unpack(const std::byte* bytes, int64_t bit, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i, bit += kBits) {
    uint32_t value = std::to_integer<uint32_t>(bytes[bit / 8]);
    if (bit % 8 + kBits > 8) value |= std::to_integer<uint32_t>(bytes[bit / 8 + 1]) << 8;
    out[i] = static_cast<uint8_t>(value >> (bit % 8) & ((1u << kBits) - 1));
  }
}

// Codes of a row, two in a byte, up to a multiple of 4 bytes.
void PackNibbles(const uint8_t* codes, int64_t columns, std::byte* out) {
  std::memset(out, 0, static_cast<size_t>(kernels::Int4CodeBytes(columns)));
  for (int64_t i = 0; i + 1 < columns; i += 2) {
    out[i / 2] = static_cast<std::byte>(codes[i] | codes[i + 1] << 4);
  }
  if (columns % 2 != 0) out[columns / 2] = static_cast<std::byte>(codes[columns - 1]);
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ReadInputGroups(const Checkpoint& checkpoint,
                                                     const StoredMatrix& matrix) {
  std::vector<int32_t> groups;
  if (matrix.order.empty()) return groups;
  const CheckpointTensor& tensor = checkpoint.Get(matrix.order);
  std::vector<std::byte> bytes;
  absl::Status read =
      ReadBlock(tensor, matrix.columns, {0, 1}, {0, matrix.columns}, sizeof(int32_t), &bytes);
  if (!read.ok()) return read;
  groups.resize(static_cast<size_t>(matrix.columns));
  std::memcpy(groups.data(), bytes.data(), bytes.size());
  const int64_t count = (matrix.columns + matrix.scaled_columns - 1) / matrix.scaled_columns;
  bool in_order = true;
  for (int64_t i = 0; i < matrix.columns; ++i) {
    const int32_t group = groups[static_cast<size_t>(i)];
    if (group < 0 || group >= count) {
      return absl::InvalidArgumentError(
          StrCat(tensor.Describe(), " puts input ", i, " into group ", group, " of ", count));
    }
    in_order = in_order && group == i / matrix.scaled_columns;
  }
  if (in_order) groups.clear();
  return groups;
}

CodeRows::CodeRows(std::string name, std::string place, StoredMatrix matrix,
                   std::vector<int32_t> order)
    : name_(std::move(name)),
      place_(std::move(place)),
      matrix_(std::move(matrix)),
      order_(std::move(order)) {}

absl::StatusOr<RowForm> CodeRows::FormOf(const IndexRange& columns) const {
  if (!matrix_.keeps_codes || !order_.empty()) return RowForm{};
  const auto group = GroupOfSlice(matrix_.scaled_columns, name_, matrix_.columns, columns);
  if (!group.ok()) return group.status();
  return RowForm{.dtype = DType::kI4, .group_size = *group};
}

IndexRange CodeRows::GroupsOf(const IndexRange& columns) const {
  if (order_.empty()) return {GroupOf(columns.begin), GroupOf(columns.end - 1) + 1};
  return {0, (matrix_.columns + matrix_.scaled_columns - 1) / matrix_.scaled_columns};
}

absl::Status CodeRows::Read(const IndexRange& rows, const IndexRange& columns, const RowForm& form,
                            RowScratch* scratch, std::byte* out) const {
  auto& [raw, code_bytes, zero_bytes, scale_bytes] = scratch->parts;
  const IndexRange groups = GroupsOf(columns);
  auto* codes = Sized<uint8_t>(&code_bytes, rows.size() * columns.size());
  auto* zeros = Sized<uint8_t>(&zero_bytes, rows.size() * groups.size());
  auto* scales = Sized<float>(&scale_bytes, rows.size() * groups.size());
  absl::Status read = ReadCodes(rows, columns, &raw, codes);
  read.Update(ReadZeros(rows, groups, &raw, zeros));
  read.Update(ReadScales(rows, groups, &raw, scales));
  if (!read.ok()) return read;
  for (int64_t i = 0; i < rows.size() * groups.size(); ++i) {
    if (std::isfinite(scales[i])) continue;
    return absl::InvalidArgumentError(StrCat("the scale of output ", rows.begin + i / groups.size(),
                                             " in group ", groups.begin + i % groups.size(),
                                             " is not finite; the checkpoint is damaged"));
  }
  const int64_t row_bytes = RowBytes(form, columns.size());
  for (int64_t row = 0; row < rows.size(); ++row, out += row_bytes) {
    const uint8_t* row_codes = codes + row * columns.size();
    // Zeros of group 0, which may lie before the first that was read.
    const uint8_t* row_zeros = zeros + row * groups.size() - groups.begin;
    const float* row_scales = scales + row * groups.size() - groups.begin;
    if (form.dtype == DType::kI4) {
      PackNibbles(row_codes, columns.size(), out);
      std::byte* words = out + kernels::Int4CodeBytes(columns.size());
      for (int64_t i = 0; i < kernels::Int4Groups(columns.size(), form.group_size); ++i) {
        const int64_t group = GroupOf(columns.begin + i * form.group_size);
        const uint32_t word = kernels::Int4Word(row_scales[group], row_zeros[group]);
        std::memcpy(words + i * sizeof(word), &word, sizeof(word));
      }
      continue;
    }
    auto* values = reinterpret_cast<float*>(out);
    for (int64_t i = 0; i < columns.size(); ++i) {
      const int64_t group = GroupOf(columns.begin + i);
      values[i] = row_scales[group] * static_cast<float>(row_codes[i] - row_zeros[group]);
    }
  }
  return absl::OkStatus();
}

IndexRange WordsOf(const IndexRange& values, int64_t bits) {
  return {values.begin * bits / kWordBits, (values.end * bits + kWordBits - 1) / kWordBits};
}

void UnpackBits(const std::byte* words, int64_t first, int64_t count, int64_t bits, uint8_t* out) {
  const int64_t bit = first * bits % kWordBits;
  switch (bits) {
    case 2: return Unpack<2>(words, bit, count, out);
    case 3: return Unpack<3>(words, bit, count, out);
    case 4: return Unpack<4>(words, bit, count, out);
    case 5: return Unpack<5>(words, bit, count, out);
    case 6: return Unpack<6>(words, bit, count, out);
    case 7: return Unpack<7>(words, bit, count, out);
    default: return Unpack<8>(words, bit, count, out);
  }
}

}  // namespace tessera::worker
