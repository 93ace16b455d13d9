// Files as they are published, and as a hostile stranger would send them.
#include "worker/weights/safetensors.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"
#include "worker/weights/checkpoint.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

std::string File(const std::string& header, size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file + header + std::string(data_bytes, 'x');
}

absl::StatusOr<std::vector<SafetensorsEntry>> Parse(const std::string& file) {
  return ParseSafetensorsHeader(file, static_cast<int64_t>(file.size()), "m.safetensors");
}

std::string ErrorOf(const std::string& file) {
  const auto entries = Parse(file);
  REQUIRE_FALSE(entries.ok());
  CHECK(entries.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string message(entries.status().message());
  CHECK_THAT(message, Catch::StartsWith("m.safetensors: "));
  return message;
}

std::string ErrorOf(const std::string& header, size_t data_bytes) {
  return ErrorOf(File(header, data_bytes));
}

std::string Entry(const std::string& name, const std::string& shape, const std::string& offsets,
                  const std::string& dtype = "F32") {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

template <typename T>
std::string MessageOf(const absl::StatusOr<T>& result) {
  REQUIRE_FALSE(result.ok());
  return std::string(result.status().message());
}

}  // namespace

TEST_CASE("entries come in the order of their places, offsets from the file's start") {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},)" + Entry("b", "[2,3]", "[4,16]", "BF16") + "," +
      Entry("a", "[]", "[0,4]") + "," + Entry("none", "[0,5]", "[16,16]") + "}  ";
  const auto entries = Parse(File(header, 16));
  INFO(entries.status().ToString());
  REQUIRE(entries.ok());
  REQUIRE(entries->size() == 3);
  const auto data = static_cast<int64_t>(8 + header.size());
  CHECK((*entries)[0].name == "a");
  CHECK((*entries)[0].begin == data);
  CHECK((*entries)[1].name == "b");
  CHECK((*entries)[1].shape == std::vector<int64_t>{2, 3});
  CHECK((*entries)[1].dtype == "BF16");
  CHECK((*entries)[1].end == data + 16);
  CHECK((*entries)[2].name == "none");
}

TEST_CASE("an empty file of no tensors is a file") { CHECK(Parse(File("{}", 0)).ok()); }

TEST_CASE("lengths that cannot be") {
  CHECK_THAT(ErrorOf(""), Contains("too short"));
  CHECK_THAT(ErrorOf("1234567"), Contains("too short"));
  CHECK_THAT(ErrorOf(std::string(8, '\xff')), Contains("18446744073709551615"));
  CHECK_THAT(ErrorOf(File("{}", 0).substr(0, 9)), Contains("cut off"));
  CHECK_THAT(ErrorOf(std::string("\x00\x00\x00\x40\x00\x00\x00\x00", 8) + "{}"),
             Contains("cut off"));
}

TEST_CASE("headers that are none") {
  CHECK_THAT(ErrorOf("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
             Contains("a pointer of Git LFS, not the file itself: fetch it"));
  CHECK_THAT(ErrorOf("{", 0), Contains("not valid JSON"));
  CHECK_THAT(ErrorOf("", 0), Contains("not valid JSON"));
  CHECK_THAT(ErrorOf("[]", 0), Contains("a list"));
  CHECK_THAT(ErrorOf("3", 0), Contains("a number"));
  CHECK_THAT(ErrorOf("null", 0), Contains("null"));
  CHECK_THAT(ErrorOf(R"({"a":3})", 0), Contains("where tensors are expected"));
  CHECK_THAT(ErrorOf(std::string(1 << 20, '['), 0), Contains("a list"));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  CHECK_THAT(ErrorOf(deep, 0), Contains("tensor 'a'"));
  CHECK_THAT(ErrorOf(R"({"__metadata__":{"a":{"b":1}}})", 0), Contains("an object"));
  CHECK_THAT(ErrorOf("{\"\xff\":1}", 0), Contains("not valid JSON"));
}

TEST_CASE("tensors that are damaged are named") {
  CHECK_THAT(ErrorOf("{" + Entry("w", "[2]", "[0,4]") + "}", 4),
             Contains("tensor 'w': dtype and shape need 8 bytes, data_offsets give 4"));
  CHECK_THAT(ErrorOf("{" + Entry("w", "[1]", "[0,4]") + "}", 3),
             Contains("tensor 'w': its bytes lie beyond the end of the file: cut off"));
  CHECK_THAT(ErrorOf("{" + Entry("w", "[1]", "[0,4]") + "}", 5), Contains("1 bytes belong to no"));
  CHECK_THAT(ErrorOf("{" + Entry("w", "[1]", "[4,8]") + "}", 8), Contains("'w': there is a hole"));
  CHECK_THAT(ErrorOf("{" + Entry("a", "[2]", "[0,8]") + "," + Entry("b", "[1]", "[4,8]") + "}", 8),
             Contains("tensor 'b': its bytes overlap"));
  CHECK_THAT(ErrorOf("{" + Entry("w", "[1]", "[4,0]") + "}", 4), Contains("tensor 'w'"));
  CHECK_THAT(ErrorOf("{" + Entry("w", "[4294967296,4294967296]", "[0,4]") + "}", 4),
             Contains("tensor 'w': the shape is too large"));
  CHECK_THAT(ErrorOf("{" + Entry("w", "[18446744073709551615]", "[0,4]") + "}", 4),
             Contains("beyond 2^63"));
  CHECK_THAT(ErrorOf("{" + Entry("w", "[-1]", "[0,4]") + "}", 4), Contains("a negative number"));
  CHECK_THAT(ErrorOf("{" + Entry("w", "[1.5]", "[0,4]") + "}", 4), Contains("a fraction"));
  CHECK_THAT(ErrorOf("{" + Entry("w", "[1]", "[0,4]", "F31") + "}", 4),
             Contains("tensor 'w': dtype 'F31' is not known"));
  CHECK_THAT(ErrorOf("{" + Entry("w", "[1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", 4),
             Contains("more numbers"));
  CHECK_THAT(ErrorOf("{" + Entry("w", "[1]", "[0,4,8]") + "}", 4), Contains("more numbers"));
  CHECK_THAT(ErrorOf("{" + Entry("w", "[1]", "[0,4]") + "," + Entry("w", "[1]", "[4,8]") + "}", 8),
             Contains("tensor 'w' twice"));
  CHECK_THAT(ErrorOf(R"({"w":{"dtype":"F32","shape":[1]}})", 4), Contains("missing"));
  CHECK_THAT(ErrorOf(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4),
             Contains("tensor 'w': key 'x' is unexpected"));
}

TEST_CASE("a file: bytes are read, and one that was cut short since is told") {
  tests::TemporaryFolder folder;
  const std::string header = "{" + Entry("w", "[25000]", "[0,100000]") + "}";
  folder.Write("m.safetensors", File(header, 100000));
  const auto file = SafetensorsFile::Open(folder.path() / "m.safetensors");
  REQUIRE(file.ok());
  const SafetensorsEntry& entry = (*file)->entries()[0];
  std::vector<std::byte> bytes(entry.end - entry.begin);
  REQUIRE((*file)->Read(entry.begin, bytes).ok());
  CHECK(bytes.front() == std::byte{'x'});
  CHECK(bytes.back() == std::byte{'x'});
  fs::resize_file(folder.path() / "m.safetensors", entry.end - 1);
  const absl::Status cut = (*file)->Read(entry.begin, bytes);
  CHECK(cut.code() == absl::StatusCode::kOutOfRange);
  CHECK_THAT(std::string(cut.message()), Contains("m.safetensors: ends at byte"));
  CHECK_THAT(MessageOf(SafetensorsFile::Open(folder.path() / "none")), Contains("none: cannot"));
  folder.Write("empty", "");
  CHECK_THAT(MessageOf(SafetensorsFile::Open(folder.path() / "empty")), Contains("empty"));
  CHECK_FALSE(SafetensorsFile::Open(folder.path()).ok());
}

TEST_CASE("a checkpoint finds tensors over all shards, and says what is wrong with one") {
  tests::TemporaryFolder folder;
  folder.Write("1.safetensors", File("{" + Entry("a", "[2,1]", "[0,8]") + "}", 8));
  folder.Write("2.safetensors", File("{" + Entry("b", "[1]", "[0,8]", "I64") + "}", 8));
  folder.Write("model.safetensors.index.json",
               R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  const auto checkpoint = Checkpoint::Open(folder.path());
  INFO(checkpoint.status().ToString());
  REQUIRE(checkpoint.ok());
  CHECK((*checkpoint)->Find("a", {2, 1}).ok());
  CHECK_THAT(
      MessageOf((*checkpoint)->Find("a", {1, 2})),
      Contains("1.safetensors: tensor 'a' has the shape [2, 1]; config.json asks for [1, 2]"));
  CHECK_THAT(MessageOf((*checkpoint)->Find("b", {1})), Contains("tensor 'b' is I64"));
  const auto missing = (*checkpoint)->Find("c", {1});
  CHECK(missing.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(MessageOf(missing), Contains("tensor 'c' is in none"));
}

TEST_CASE("an index that does not fit its shards") {
  tests::TemporaryFolder folder;
  folder.Write("1.safetensors", File("{" + Entry("a", "[1]", "[0,4]") + "}", 4));
  folder.Write("2.safetensors", File("{" + Entry("a", "[1]", "[0,4]") + "}", 4));
  folder.Write("model.safetensors.index.json",
               R"({"weight_map": {"a": "1.safetensors", "b": "1.safetensors"}})");
  CHECK_THAT(MessageOf(Checkpoint::Open(folder.path())),
             Contains("tensor 'b' is in 1.safetensors, but it is not there"));
  folder.Write("model.safetensors.index.json",
               R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  CHECK_THAT(MessageOf(Checkpoint::Open(folder.path())), Contains("tensor 'a' is in"));
  folder.Write("model.safetensors.index.json", R"({"weight_map": {"a": "3.safetensors"}})");
  CHECK_THAT(MessageOf(Checkpoint::Open(folder.path())), Contains("3.safetensors: cannot"));
}

}  // namespace tessera::worker
