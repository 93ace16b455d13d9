// int4 and its kin with a word of eight codes: AWQ, GPTQ (also of 2 to 8 bits, with act-order),
// and AutoRound, which packs as either.
//
// NAME.qweight has the codes, NAME.qzeros the zeros, NAME.scales [groups, out] the scales. AWQ
// packs neighbouring outputs: qweight [in, out / 8], qzeros [groups, out / 8]. GPTQ packs
// neighbouring inputs: qweight [in * bits / 32, out], qzeros [groups, out * bits / 32]; NAME.g_idx
// [in] may name the group of each input.
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/ascii.h"
#include "proto/model/formats/format.h"
#include "proto/model/formats/methods.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr int64_t kWordBits = 32, kMaxKeptBits = 4;
constexpr int64_t kGroupUnit = 8, kMaxGroup = int64_t{1} << 22;
constexpr std::string_view kWords[] = {"I32"};
constexpr std::string_view kScaleTypes[] = {"F16", "BF16"};
constexpr const char* kWordsWhy = "; packed weights must be I32";
constexpr const char* kScalesWhy = "; scales of int4 weights must be F16 or BF16";

// The key that the object has, of two spellings; both must not stand there with other values.
const char* OneOf(JsonReader& reader, const char* key, const char* other) {
  if (!reader.Has(other)) return key;
  if (reader.Has(key) && reader.At(key) != reader.At(other)) {
    reader.Fail(key, StrCat("and ", other, " say different things: remove one of them"));
  }
  return other;
}

// Bits of a code, and the inputs that share a scale.
void ReadSizes(JsonReader& reader, const char* bits_key, const char* group_key, bool only_4,
               v1::Quantization* quantization) {
  const int64_t bits = reader.Integer(bits_key, 1, 32);
  if (reader.ok() && bits != 4 && (only_4 || bits < 2 || bits > 8)) {
    reader.Fail(bits_key, StrCat(bits, " is not supported: ", only_4 ? "4 is" : "2 to 8 are",
                                 kOtherCheckpoint));
  }
  const int64_t group = reader.IntegerOr(group_key, 128, -1, kMaxGroup);
  if (reader.ok() && group != -1 && (group < 1 || group % kGroupUnit != 0)) {
    reader.Fail(group_key, StrCat(group, " is not supported; it must be -1 (all inputs), or a ",
                                  "multiple of ", kGroupUnit));
  }
  if (!reader.ok()) return;
  quantization->set_group_size(static_cast<int32_t>(group == -1 ? 0 : group));
  if (bits > kMaxKeptBits) quantization->set_decoded(true);
}

void CheckZeroPoint(JsonReader& reader) {
  if (reader.BoolOr("zero_point", true)) return;
  reader.Fail("zero_point", StrCat("false is not supported", kOtherCheckpoint));
}

bool HoldsPackedWords(const TensorDirectory& tensors, const std::string& name) {
  return tensors.FindTensor(name + ".qweight").has_value();
}

// Bits of a code by the rows of words; 4 where they fit none: the check of shapes then fails.
int64_t GptqBits(const StoredTensor& words, int64_t columns) {
  for (int64_t bits = 2; bits <= 8; ++bits) {
    if (!words.shape.empty() && words.shape[0] * kWordBits == columns * bits) return bits;
  }
  return 4;
}

// Inputs that share a scale: as config.json says, unless the scales of this matrix say otherwise.
int64_t GroupOf(const std::optional<StoredTensor>& scales, const v1::Quantization& quantization,
                int64_t columns) {
  const int64_t said = quantization.group_size() == 0 ? columns : quantization.group_size();
  if (!scales.has_value() || scales->shape.empty()) return said;
  const int64_t groups = scales->shape[0];
  if (groups < 1 || groups == CeilOf(columns, said) || columns % groups != 0) return said;
  return columns / groups;
}

absl::StatusOr<StoredMatrix> FindPackedWords(const TensorDirectory& tensors,
                                             const v1::Quantization& quantization,
                                             const std::string& name, StoredMatrix matrix) {
  const bool awq = quantization.format() == v1::WEIGHT_FORMAT_AWQ;
  const int64_t rows = matrix.rows, columns = matrix.columns;
  matrix.as = awq ? StoredAs::kAwq : StoredAs::kGptq;
  matrix.codes = name + ".qweight";
  matrix.zeros = name + ".qzeros";
  matrix.scales = name + ".scales";
  matrix.bits = awq ? 4 : GptqBits(*tensors.FindTensor(matrix.codes), columns);
  const auto is_packed = [&](int64_t size) { return size * matrix.bits % kWordBits == 0; };
  if (!is_packed(rows) || (!awq && !is_packed(columns))) {
    return absl::InvalidArgumentError(StrCat("matrix '", name, "' [", rows, ", ", columns,
                                             "] cannot be of ", matrix.bits,
                                             " bits: its sizes do not fill words of 32 bits"));
  }
  const int64_t row_words = rows * matrix.bits / kWordBits;
  matrix.scaled_columns = GroupOf(tensors.FindTensor(matrix.scales), quantization, columns);
  const int64_t groups = CeilOf(columns, matrix.scaled_columns);
  auto found = awq ? ExpectTensor(tensors, matrix.codes, {columns, row_words}, kWords, kWordsWhy)
                   : ExpectTensor(tensors, matrix.codes, {columns * matrix.bits / kWordBits, rows},
                                  kWords, kWordsWhy);
  if (found.ok())
    found = ExpectTensor(tensors, matrix.zeros, {groups, row_words}, kWords, kWordsWhy);
  if (found.ok()) {
    found = ExpectTensor(tensors, matrix.scales, {groups, rows}, kScaleTypes, kScalesWhy);
  }
  matrix.order = name + ".g_idx";
  if (!tensors.FindTensor(matrix.order).has_value()) {
    matrix.order.clear();
  } else if (found.ok()) {
    found =
        ExpectTensor(tensors, matrix.order, {columns}, kWords, "; numbers of groups must be I32");
  }
  if (!found.ok()) return found.status();
  matrix.keeps_codes = matrix.bits <= kMaxKeptBits && !quantization.decoded();
  return matrix;
}

}  // namespace

void ReadAwq(JsonReader& reader, v1::Quantization* quantization) {
  quantization->set_format(v1::WEIGHT_FORMAT_AWQ);
  CheckZeroPoint(reader);
  const std::string version = absl::AsciiStrToLower(reader.StringOr("version", "gemm"));
  if (version != "gemm") {
    reader.Fail("version", StrCat("'", version,
                                  "' packs weights in another order; of AWQ only 'gemm' is "
                                  "supported",
                                  kOtherCheckpoint));
  }
  // AWQ's own tools wrote the second of each.
  ReadSizes(reader, OneOf(reader, "bits", "w_bit"), OneOf(reader, "group_size", "q_group_size"),
            true, quantization);
}

void ReadGptq(JsonReader& reader, v1::Quantization* quantization) {
  quantization->set_format(v1::WEIGHT_FORMAT_GPTQ);
  const char* key = OneOf(reader, "checkpoint_format", "format");
  const std::string format = reader.StringOr(key, "gptq");
  if (format != "gptq" && format != "gptq_v2") {
    reader.Fail(key, StrCat("'", format, "' is not supported; known are gptq and ", "gptq_v2",
                            kOtherCheckpoint));
  }
  if (reader.StringOr("pack_dtype", "int32") != "int32") {
    reader.Fail("pack_dtype", StrCat("must be int32", kOtherCheckpoint));
  }
  quantization->set_zeros_less_one(format == "gptq");
  ReadSizes(reader, OneOf(reader, "bits", "w_bit"), OneOf(reader, "group_size", "q_group_size"),
            false, quantization);
  // Inputs that share a scale are no neighbours then.
  if (reader.BoolOr("desc_act", false) && quantization->group_size() != 0) {
    quantization->set_decoded(true);
  }
}

void ReadAutoRound(JsonReader& reader, v1::Quantization* quantization) {
  const std::string packing = reader.StringOr("packing_format", "auto_round:auto_gptq");
  if (packing == "auto_round:auto_awq") {
    quantization->set_format(v1::WEIGHT_FORMAT_AWQ);
  } else if (packing == "auto_round:auto_gptq" || packing == "auto_round:gptqmodel" ||
             packing == "auto_round") {
    quantization->set_format(v1::WEIGHT_FORMAT_GPTQ);
    quantization->set_zeros_less_one(packing == "auto_round:auto_gptq");
  } else {
    reader.Fail("packing_format",
                StrCat("'", packing.substr(0, 60), "' is not supported; known are auto_round, ",
                       "auto_round:auto_gptq, auto_round:gptqmodel and auto_round:auto_awq",
                       kOtherCheckpoint));
  }
  if (const std::string type = reader.StringOr("data_type", "int"); type != "int") {
    reader.Fail("data_type",
                StrCat("'", type.substr(0, 60), "' is not supported: int is", kOtherCheckpoint));
  }
  RefuseKey(reader, "super_bits", "scales that are quantised themselves are not supported");
  ReadSizes(reader, "bits", "group_size", quantization->format() == v1::WEIGHT_FORMAT_AWQ,
            quantization);
}

extern const MatrixFormat kPackedWordsFormat = {.holds = HoldsPackedWords, .find = FindPackedWords};

}  // namespace tessera
