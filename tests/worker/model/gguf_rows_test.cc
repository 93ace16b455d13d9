// Blocks of GGUF files against the values that the gguf package decodes, bit for bit, whole and cut
// at any column, as values and as the codes that ops multiply with.
#include "worker/weights/gguf_rows.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "kernels/int4_rows.h"
#include "proto/model/gguf_header.h"
#include "tests/fakes/gguf_file.h"
#include "tests/temporary_folder.h"
#include "worker/weights/safetensors.h"

namespace tessera::worker {
namespace {

using Catch::Contains;
using kernels::DType;

constexpr int64_t kRows = 3, kColumns = 512;
constexpr const char* kTypes[] = {"Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"};

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

// A file whose only matrix, token_embd, is the golden blocks of a type.
class GgufFile {
 public:
  GgufFile(const std::string& type, const std::vector<uint8_t>& blocks) {
    std::vector<std::string> keys = {tests::GgufTextKey("general.architecture", "llama")};
    for (const auto& [key, value] :
         {std::pair("block_count", 1), std::pair("context_length", 8),
          std::pair("embedding_length", 512), std::pair("attention.head_count", 8),
          std::pair("feed_forward_length", 512)}) {
      keys.push_back(tests::GgufKey(std::string("llama.") + key, static_cast<uint32_t>(value)));
    }
    const auto id = static_cast<uint32_t>(FindGgufType(type)->id);
    std::string bytes = tests::GgufBytes(
        keys, {{.name = "token_embd.weight", .sizes = {kColumns, kRows}, .type = id}}, 0);
    bytes.append(reinterpret_cast<const char*>(blocks.data()), blocks.size());
    folder_.Write("model.gguf", bytes);
    auto opened = Checkpoint::Open(folder_.path() / "model.gguf");
    INFO(opened.status().ToString());
    REQUIRE(opened.ok());
    checkpoint_ = *std::move(opened);
  }

  std::shared_ptr<const RowSource> Open() const {
    const v1::Model model;
    REQUIRE(HoldsGguf(*checkpoint_, model, kName));
    auto source = OpenGguf(*checkpoint_, model, kName, kRows, kColumns);
    REQUIRE(source.ok());
    return *source;
  }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  static constexpr const char* kName = "model.embed_tokens";

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
    const auto source = file.Open()->Elements();
    for (const IndexRange columns :
         {IndexRange{0, kColumns}, {0, 1}, {31, 33}, {100, 437}, {256, 512}, {511, 512}}) {
      CAPTURE(columns.begin, columns.end);
      const auto form = source->FormOf(columns);
      REQUIRE(form.ok());
      CHECK(*form == RowForm{.dtype = DType::kF32});
      const std::vector<std::byte> read = ReadRows(*source, columns, *form);
      for (int64_t row = 0; row < kRows; ++row) {
        CHECK(std::memcmp(read.data() + row * columns.size() * 4,
                          values.data() + row * kColumns + columns.begin,
                          static_cast<size_t>(columns.size()) * 4) == 0);
      }
    }
  }
}

TEST_CASE("Q4_0 is kept as codes of the same values, wherever a slice begins at 8 inputs") {
  const std::vector<float> values = Golden<float>("Q4_0.values");
  const GgufFile file("Q4_0", Golden<uint8_t>("Q4_0.blocks"));
  const auto source = file.Open();
  const std::pair<IndexRange, int64_t> slices[] = {
      {{0, kColumns}, 32}, {{64, 100}, 32}, {{16, 320}, 16}, {{40, 41}, 8}};
  for (const auto& [columns, group] : slices) {
    CAPTURE(columns.begin, columns.end);
    const auto form = source->FormOf(columns);
    REQUIRE(form.ok());
    CHECK(*form == RowForm{.dtype = DType::kI4, .group_size = group});
    const std::vector<std::byte> read = ReadRows(*source, columns, *form);
    const int64_t row_bytes = RowBytes(*form, columns.size());
    for (int64_t row = 0; row < kRows; ++row) {
      const std::byte* codes = read.data() + row * row_bytes;
      const std::byte* words = codes + kernels::Int4CodeBytes(columns.size());
      for (int64_t i = 0; i < columns.size(); ++i) {
        const float value =
            kernels::Int4Weight(kernels::Int4Code(codes, i), kernels::Int4WordAt(words, i / group));
        REQUIRE(value == values[row * kColumns + columns.begin + i]);
      }
    }
  }
  CHECK(source->FormOf({4, 64})->dtype == DType::kF32);
}

TEST_CASE("Q8_0 says that int8 keeps its values, where a slice begins with a block") {
  const GgufFile file("Q8_0", Golden<uint8_t>("Q8_0.blocks"));
  CHECK(file.Open()->FormOf({32, 128})->int8_group_size == 32);
  CHECK(file.Open()->FormOf({8, 128})->int8_group_size == 0);
  CHECK(file.Open()->Elements()->FormOf({0, 128})->int8_group_size == 0);
  CHECK(file.Open()->decoded_from() == "Q8_0");
}

TEST_CASE("a scale that is not finite, and another shape, are refused by name") {
  for (const std::string type : kTypes) {
    CAPTURE(type);
    std::vector<uint8_t> blocks = Golden<uint8_t>(type + ".blocks");
    const size_t scale = type == "Q6_K" ? 208 : 0;
    blocks[scale] = 0;
    blocks[scale + 1] = 0x7c;  // infinity
    const GgufFile file(type, blocks);
    const auto source = file.Open();
    const auto form = source->FormOf({0, kColumns});
    std::vector<std::byte> out(kRows * RowBytes(*form, kColumns));
    RowScratch scratch;
    const absl::Status read = source->Read({0, kRows}, {0, kColumns}, *form, &scratch, out.data());
    CHECK_THAT(std::string(read.message()), Contains("output 0 is not finite"));
    const auto other = OpenGguf(file.checkpoint(), {}, GgufFile::kName, kRows, kColumns / 2);
    CHECK_THAT(std::string(other.status().message()), Contains("model.embed_tokens.weight"));
  }
}

}  // namespace
}  // namespace tessera::worker
