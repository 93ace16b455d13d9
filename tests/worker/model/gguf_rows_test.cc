// Blocks of GGUF files against the values that the gguf package decodes, bit for bit, whole and cut
// at any column, as values and as the codes that ops multiply with.
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "kernels/byte_rows.h"
#include "kernels/int4_rows.h"
#include "proto/model/gguf_header.h"
#include "proto/model/row_order.h"
#include "tests/fakes/gguf_file.h"
#include "tests/temporary_folder.h"
#include "worker/weights/mapped_columns.h"
#include "worker/weights/safetensors.h"
#include "worker/weights/weight_formats.h"

namespace tessera::worker {
namespace {

using Catch::Contains;
using kernels::DType;

constexpr int64_t kRows = 2, kColumns = 512;
constexpr const char* kTypes[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1",  "Q8_0",   "Q2_K",  "Q3_K",
                                  "Q4_K", "Q5_K", "Q6_K", "MXFP4", "IQ4_NL", "IQ4_XS"};
// No form of codes holds the values of these.
bool IsDecoded(const std::string& type) { return type == "Q5_1" || type == "Q5_K"; }

template <typename T>
std::vector<T> Golden(const std::string& name) {
  const auto file = SafetensorsFile::Open("tests/golden/gguf/blocks.safetensors");
  REQUIRE(file.ok());
  for (const SafetensorsEntry& entry : (*file)->entries()) {
    if (entry.name != name) continue;
    std::vector<T> values((entry.end - entry.begin) / sizeof(T));
    REQUIRE((*file)->Read(entry.begin, std::as_writable_bytes(std::span(values))).ok());
    return values;
  }
  FAIL("no golden tensor " << name);
  return {};
}

// A llama of one layer.
std::vector<std::string> LlamaKeys() {
  std::vector<std::string> keys = {tests::GgufTextKey("general.architecture", "llama")};
  for (const auto& [key, value] :
       {std::pair("block_count", 1), std::pair("context_length", 8),
        std::pair("embedding_length", 512), std::pair("attention.head_count", 8),
        std::pair("feed_forward_length", 512)}) {
    keys.push_back(tests::GgufKey(std::string("llama.") + key, static_cast<uint32_t>(value)));
  }
  return keys;
}

// A file whose only matrix, token_embd, is the golden blocks of a type.
class GgufFile {
 public:
  GgufFile(const std::string& type, const std::vector<uint8_t>& blocks) {
    const auto id = static_cast<uint32_t>(FindGgufType(type)->id);
    std::string bytes = tests::GgufBytes(
        LlamaKeys(), {{.name = "token_embd.weight", .sizes = {kColumns, kRows}, .type = id}}, 0);
    bytes.append(reinterpret_cast<const char*>(blocks.data()), blocks.size());
    folder_.Write("model.gguf", bytes);
    auto opened = Checkpoint::Open(folder_.path() / "model.gguf");
    INFO(opened.status().ToString());
    REQUIRE(opened.ok());
    checkpoint_ = *std::move(opened);
  }

  std::shared_ptr<const RowSource> Open() const {
    auto source = OpenColumns(kColumns);
    REQUIRE(source.ok());
    return *source;
  }
  absl::StatusOr<std::shared_ptr<const RowSource>> OpenColumns(int64_t columns) const {
    v1::Model model;
    model.mutable_quantization()->set_format(v1::WEIGHT_FORMAT_GGUF);
    return OpenMatrix(*checkpoint_, model, "model.embed_tokens", kRows, columns);
  }

 private:
  const tests::TemporaryFolder folder_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

std::vector<std::byte> ReadRows(const RowSource& source, const IndexRange& columns,
                                const RowForm& form) {
  std::vector<std::byte> out(kRows * RowBytes(form, columns.size()));
  RowScratch scratch;
  REQUIRE(source.Read({0, kRows}, columns, form, &scratch, out.data()).ok());
  return out;
}

TEST_CASE("blocks decode to the values of the gguf package, bit for bit, at any column") {
  for (const std::string type : kTypes) {
    CAPTURE(type);
    const std::vector<float> values = Golden<float>(type + ".values");
    const GgufFile file(type, Golden<uint8_t>(type + ".blocks"));
    const auto source = file.Open();
    for (const IndexRange columns :
         {IndexRange{0, kColumns}, {0, 1}, {31, 33}, {100, 437}, {256, 512}, {511, 512}}) {
      CAPTURE(columns.begin, columns.end);
      const std::vector<std::byte> read = ReadRows(*source, columns, {});
      for (int64_t row = 0; row < kRows; ++row) {
        CHECK(std::memcmp(read.data() + row * columns.size() * 4,
                          values.data() + row * kColumns + columns.begin,
                          static_cast<size_t>(columns.size()) * 4) == 0);
      }
    }
  }
}

// The golden blocks of a type, random bytes, without Q8_0's code -128: -127 is in its place.
struct Blocks {
  explicit Blocks(const std::string& type)
      : bytes(Golden<uint8_t>(type + ".blocks")), values(Golden<float>(type + ".values")) {
    constexpr size_t kBlockBytes = 34, kBlockValues = 32;
    for (size_t i = 0; type == "Q8_0" && i < values.size(); ++i) {
      uint8_t& code = bytes[i / kBlockValues * kBlockBytes + 2 + i % kBlockValues];
      if (code != 0x80) continue;
      code = 0x81;
      values[i] = values[i] / 128 * 127;
    }
  }
  std::vector<uint8_t> bytes;
  std::vector<float> values;
};

// Of a row that is read as codes.
float WeightOf(const std::byte* row, const RowForm& form, int64_t columns, int64_t i) {
  if (form.dtype == DType::kI4) {
    return kernels::Int4WeightAt(row + kernels::Int4CodeBytes(columns), kernels::Int4Code(row, i),
                                 columns, form.group_size, form.blocks, i);
  }
  REQUIRE(form.dtype == DType::kI8);
  return static_cast<float>(static_cast<int8_t>(row[i])) *
         kernels::ByteScaleAt(row + kernels::ByteCodeBytes(columns), i / form.group_size);
}

TEST_CASE("types are kept as codes of the same values, wherever a slice begins at 8 inputs") {
  for (const std::string type : kTypes) {
    if (IsDecoded(type)) continue;
    const Blocks blocks(type);
    const std::vector<float>& values = blocks.values;
    const GgufFile file(type, blocks.bytes);
    const auto source = file.Open();
    for (const IndexRange columns :
         {IndexRange{0, kColumns}, {64, 100}, {16, 320}, {40, 41}, {288, 512}, {248, 507}}) {
      CAPTURE(type, columns.begin, columns.end);
      const auto form = source->FormOf(columns);
      REQUIRE(form.ok());
      const std::vector<std::byte> read = ReadRows(*source, columns, *form);
      const int64_t row_bytes = RowBytes(*form, columns.size());
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t i = 0; i < columns.size(); ++i) {
          REQUIRE(WeightOf(read.data() + row * row_bytes, *form, columns.size(), i) ==
                  values[row * kColumns + columns.begin + i]);
        }
      }
    }
    CHECK(source->FormOf({4, 64})->dtype == DType::kF32);
    CHECK(source->code_bits() > 0);
  }
}

TEST_CASE("the code -128 of Q8_0 is refused where codes are kept, and decoded where they are not") {
  Blocks blocks("Q8_0");
  blocks.bytes[2] = 0x80;
  const GgufFile file("Q8_0", blocks.bytes);
  const auto source = file.Open();
  const auto form = source->FormOf({0, kColumns});
  std::vector<std::byte> out(kRows * RowBytes(*form, kColumns));
  RowScratch scratch;
  const absl::Status read = source->Read({0, kRows}, {0, kColumns}, *form, &scratch, out.data());
  CHECK_THAT(std::string(read.message()), Contains("output 0 has the code -128"));
  const std::vector<std::byte> values = ReadRows(*source, {0, 1}, {});
  float first = 0, second = 0;  // the first value, and what a step of it is
  std::memcpy(&first, values.data(), sizeof(first));
  std::memcpy(&second, ReadRows(*source, {1, 2}, {}).data(), sizeof(second));
  CHECK(first / -128 == second / static_cast<int8_t>(blocks.bytes[3]));
}

TEST_CASE("forms of codes: groups and pairs are as small as the slice's begin makes them") {
  const auto form = [](const std::string& type, int64_t begin) {
    const GgufFile file(type, Golden<uint8_t>(type + ".blocks"));
    return *file.Open()->FormOf({begin, kColumns});
  };
  CHECK(form("Q4_0", 16) == RowForm{.dtype = DType::kI4, .group_size = 16});
  CHECK(form("Q4_1", 0) == RowForm{.dtype = DType::kI4, .group_size = 32, .blocks = {.size = 32}});
  CHECK(form("Q4_1", 48) == RowForm{.dtype = DType::kI4, .group_size = 16, .blocks = {.size = 16}});
  CHECK(form("Q4_K", 256) ==
        RowForm{.dtype = DType::kI4, .group_size = 32, .blocks = {.size = 256}});
  CHECK(form("Q4_K", 352) ==
        RowForm{.dtype = DType::kI4, .group_size = 32, .blocks = {.size = 256, .skipped = 96}});
  CHECK(form("Q8_0", 64) == RowForm{.dtype = DType::kI8, .group_size = 32});
  CHECK(form("Q6_K", 64) == RowForm{.dtype = DType::kI8, .group_size = 16});
  CHECK(form("Q2_K", 0) == RowForm{.dtype = DType::kI4, .group_size = 16, .blocks = {.size = 256}});
  CHECK(form("Q3_K", 32) == RowForm{.dtype = DType::kI4, .group_size = 16});
  for (const char* type : {"Q5_0", "IQ4_NL", "IQ4_XS", "MXFP4"}) {
    CHECK(form(type, 32) == RowForm{.dtype = DType::kI8, .group_size = 32});
  }
  for (const std::string type : kTypes) {
    CHECK((form(type, 0).dtype == DType::kF32) == IsDecoded(type));
  }
}

TEST_CASE("a matrix of a later file of several is read from there") {
  const tests::TemporaryFolder folder;
  const std::vector<uint8_t> blocks = Golden<uint8_t>("Q4_1.blocks");
  const auto id = static_cast<uint32_t>(FindGgufType("Q4_1")->id);
  const auto keys = [](uint32_t number, std::vector<std::string> all) {
    all.push_back(tests::GgufKey("split.no", number));
    all.push_back(tests::GgufKey("split.count", 2));
    all.push_back(tests::GgufKey("split.tensors.count", 2));
    return all;
  };
  folder.Write(
      "m-00001-of-00002.gguf",
      tests::GgufBytes(keys(0, LlamaKeys()), {{.name = "output_norm.weight", .sizes = {kColumns}}},
                       kColumns * sizeof(float)));
  std::string second = tests::GgufBytes(
      keys(1, {}), {{.name = "token_embd.weight", .sizes = {kColumns, kRows}, .type = id}}, 0);
  second.append(reinterpret_cast<const char*>(blocks.data()), blocks.size());
  folder.Write("m-00002-of-00002.gguf", second);
  const auto checkpoint = Checkpoint::Open(folder.path() / "m-00001-of-00002.gguf");
  INFO(checkpoint.status().ToString());
  REQUIRE(checkpoint.ok());
  CHECK((*checkpoint)->Has("model.norm.weight"));
  v1::Model model;
  model.mutable_quantization()->set_format(v1::WEIGHT_FORMAT_GGUF);
  const auto source = OpenMatrix(**checkpoint, model, "model.embed_tokens", kRows, kColumns);
  REQUIRE(source.ok());
  const std::vector<float> values = Golden<float>("Q4_1.values");
  const std::vector<std::byte> read = ReadRows(**source, {0, kColumns}, {});
  CHECK(std::memcmp(read.data(), values.data(), read.size()) == 0);
}

TEST_CASE("a scale that is not finite, and another shape, are refused by name") {
  for (const std::string type : kTypes) {
    CAPTURE(type);
    std::vector<uint8_t> blocks = Golden<uint8_t>(type + ".blocks");
    if (type == "MXFP4") {
      blocks[0] = 0xff;
    } else {
      const size_t scale = type == "Q6_K" ? 208 : type == "Q3_K" ? 108 : type == "Q2_K" ? 80 : 0;
      blocks[scale] = 0;
      blocks[scale + 1] = 0x7c;  // infinity
    }
    const GgufFile file(type, blocks);
    const auto source = file.Open();
    const auto form = source->FormOf({0, kColumns});
    std::vector<std::byte> out(kRows * RowBytes(*form, kColumns));
    RowScratch scratch;
    const absl::Status read = source->Read({0, kRows}, {0, kColumns}, *form, &scratch, out.data());
    CHECK_THAT(std::string(read.message()), Contains("output 0 is not finite"));
    const auto other = file.OpenColumns(kColumns / 2);
    CHECK_THAT(std::string(other.status().message()), Contains("model.embed_tokens.weight"));
  }
}

// Qwen3.5 in GGUF: the heads of all key groups lie interleaved.
TEST_CASE("inputs whose heads lie in another order keep their values, as codes where heads allow") {
  struct Case {
    const char* type;
    int64_t head;
    bool codes;  // else elements: a scale, or a pair, reaches over the end of a head
  };
  for (const Case& one :
       {Case{"Q8_0", 64, true}, Case{"Q4_0", 64, true}, Case{"Q4_1", 32, true},
        Case{"Q4_K", 64, false}, Case{"Q8_0", 16, true}, Case{"Q8_0", 4, false}}) {
    CAPTURE(one.type, one.head);
    const Blocks blocks(one.type);
    const GgufFile file(one.type, blocks.bytes);
    const RowOrder order = {
        .head = one.head, .stride = one.head, .groups = 2, .of_group = kColumns / one.head / 2};
    CHECK(order.FileRow(one.head) == 2 * one.head);
    const auto source = InputsInOrder(file.Open(), order);
    for (const IndexRange columns :
         {IndexRange{0, kColumns}, {one.head, 3 * one.head}, {kColumns / 4, kColumns}}) {
      CAPTURE(columns.begin, columns.end);
      const auto form = source->FormOf(columns);
      REQUIRE(form.ok());
      CHECK(form->is_codes() == one.codes);
      const std::vector<std::byte> read = ReadRows(*source, columns, *form);
      for (int64_t row = 0; row < kRows; ++row) {
        const std::byte* of_row = read.data() + row * RowBytes(*form, columns.size());
        for (int64_t i = 0; i < columns.size(); ++i) {
          const float wanted = blocks.values[row * kColumns + order.FileRow(columns.begin + i)];
          float got = 0;
          if (one.codes) {
            got = WeightOf(of_row, *form, columns.size(), i);
          } else {
            std::memcpy(&got, of_row + i * 4, sizeof(got));
          }
          if (got != wanted) CHECK(got == wanted);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::worker
