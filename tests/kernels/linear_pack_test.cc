// Packing: what comes out of the packed form is what went in, converted or quantised as ops.h says.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "kernels/half_floats.h"
#include "tests/kernels/linear_paths.h"
#include "tests/kernels/random_bytes.h"
#include "tests/kernels/random_int4.h"

namespace tessera::kernels {
namespace {

TEST_CASE("linear pack: f32 and bf16 come back bit for bit, from every source type") {
  std::mt19937 random(1);
  const int64_t inputs = GENERATE(203, 320);  // part of a segment; a whole one, and whole pairs
  const LinearSpec shape = {.in_features = inputs, .out_features = 77};
  for (const LinearPath& path : LinearPaths()) {
    for (DType source_type : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (DType weight : {DType::kF32, DType::kBF16}) {
        Matrix source(source_type, 77, inputs, inputs + 7), back(DType::kF32, 77, inputs);
        source.FillNormal(random);
        source.Set(0, 0, 0.0f);
        source.Set(0, 1, -0.0f);
        source.Set(1, 0, 5.9604645e-8f);  // the smallest f16
        LinearSpec spec = shape;
        spec.weight_dtype = weight;
        Memory memory(path.packed_bytes(spec));
        REQUIRE(path.pack({spec, memory.data()}, 0, source.view).ok());
        path.unpack({spec, memory.data()}, 0, back.view);
        for (int64_t row = 0; row < 77; ++row) {
          for (int64_t i = 0; i < inputs; ++i) {
            const float value = source.Get(row, i);
            const float expected =
                weight == DType::kF32 ? value : ToFloat(FromFloat<BFloat16>(value));
            REQUIRE(BitsFromFloat(back.Get(row, i)) == BitsFromFloat(expected));
          }
        }
      }
    }
  }
}

TEST_CASE("linear pack: int8 is symmetric, scale max/127 per row and group, to nearest") {
  std::mt19937 random(2);
  for (const LinearPath& path : LinearPaths()) {
    for (int64_t group : {128, 50, 1}) {
      const LinearSpec spec = {
          .in_features = 300, .out_features = 37, .weight_dtype = DType::kI8, .group_size = group};
      Matrix source(DType::kF32, 37, 300), back(DType::kF32, 37, 300);
      source.FillNormal(random);
      for (int64_t i = 0; i < 300; ++i) source.Set(5, i, 0.0f);
      Memory memory(path.packed_bytes(spec));
      REQUIRE(path.pack({spec, memory.data()}, 0, source.view).ok());
      path.unpack({spec, memory.data()}, 0, back.view);
      for (int64_t row = 0; row < 37; ++row) {
        for (int64_t begin = 0; begin < 300; begin += group) {
          const int64_t end = std::min<int64_t>(300, begin + group);
          float largest = 0.0f;
          for (int64_t i = begin; i < end; ++i)
            largest = std::max(largest, std::abs(source.Get(row, i)));
          const float scale = largest / 127.0f;
          for (int64_t i = begin; i < end; ++i) {
            const float code = scale == 0.0f ? 0.0f : std::nearbyint(source.Get(row, i) / scale);
            REQUIRE(back.Get(row, i) == scale * code);
          }
        }
      }
    }
  }
}

TEST_CASE("linear pack: in pieces as in one go, and padding is cleared") {
  std::mt19937 random(3);
  for (const LinearPath& path : LinearPaths()) {
    for (DType weight : {DType::kF32, DType::kBF16, DType::kI8}) {
      const LinearSpec spec = {.in_features = 201, .out_features = 75, .weight_dtype = weight};
      Matrix source(DType::kF32, 75, 201);
      source.FillNormal(random);
      const int64_t size_bytes = path.packed_bytes(spec);
      Memory whole(size_bytes), pieces(size_bytes);
      REQUIRE(path.pack({spec, whole.data()}, 0, source.view).ok());
      constexpr int64_t kEnds[] = {1, 30, 33, 64, 75};
      int64_t begin = 0;
      for (int64_t end : kEnds) {
        TensorView rows = source.view.Rows(end - begin);
        rows.data = reinterpret_cast<std::byte*>(source.view.Row<float>(begin));
        REQUIRE(path.pack({spec, pieces.data()}, begin, rows).ok());
        begin = end;
      }
      CHECK(std::memcmp(whole.data(), pieces.data(), size_bytes) == 0);
    }
  }
}

TEST_CASE(
    "linear pack: int4 comes back exactly, in pieces as in one go, and padding weighs nothing") {
  std::vector<Int4Form> forms = {{128, {}}, {32, {}}, {7, {}}, {16, {.size = 256, .skipped = 240}}};
  forms.insert(forms.end(), std::begin(kInt4Offsets), std::end(kInt4Offsets));
  for (const LinearPath& path : LinearPaths()) {
    for (const auto& [group, blocks] : forms) {
      const LinearSpec spec = {.in_features = 201,
                               .out_features = 75,
                               .weight_dtype = DType::kI4,
                               .group_size = group,
                               .blocks = blocks};
      const auto rows = RandomInt4(75, 201, group, 9, blocks);
      const int64_t size_bytes = path.packed_bytes(spec);
      Memory whole(size_bytes), pieces(size_bytes);
      REQUIRE(path.pack({spec, whole.data()}, 0, Int4Rows(rows, 0, 75, 201, group, blocks)).ok());
      constexpr int64_t kEnds[] = {1, 30, 33, 64, 75};
      int64_t begin = 0;
      for (int64_t end : kEnds) {
        const TensorView part = Int4Rows(rows, begin, end - begin, 201, group, blocks);
        REQUIRE(path.pack({spec, pieces.data()}, begin, part).ok());
        begin = end;
      }
      CHECK(std::memcmp(whole.data(), pieces.data(), size_bytes) == 0);
      Matrix back(DType::kF32, 75, 201);
      path.unpack({spec, whole.data()}, 0, back.view);
      const std::vector<float> expected = Int4Weights(rows, 201, group, blocks);
      for (int64_t row = 0; row < 75; ++row) {
        for (int64_t i = 0; i < 201; ++i) REQUIRE(back.Get(row, i) == expected[row * 201 + i]);
      }
    }
  }
}

TEST_CASE("linear pack: rows of int8 and float8 codes come back exactly, every code") {
  for (const LinearPath& path : LinearPaths()) {
    for (const DType type : {DType::kI8, DType::kF8}) {
      for (int64_t group : {128, 16, 7}) {
        const LinearSpec spec = {
            .in_features = 201, .out_features = 75, .weight_dtype = type, .group_size = group};
        auto rows = RandomBytes(type, 75, 201, group, 9);
        for (int code = 0; code < 127; ++code) {  // in the first row, with both signs
          rows[code] = static_cast<std::byte>(code % 2 == 0 ? code : code | 0x80);
        }
        const int64_t size_bytes = path.packed_bytes(spec);
        Memory whole(size_bytes), pieces(size_bytes);
        REQUIRE(path.pack({spec, whole.data()}, 0, ByteRows(rows, 0, 75, 201, group)).ok());
        for (int64_t begin = 0; begin < 75; begin += 25) {
          const TensorView part = ByteRows(rows, begin, 25, 201, group);
          REQUIRE(path.pack({spec, pieces.data()}, begin, part).ok());
        }
        CHECK(std::memcmp(whole.data(), pieces.data(), size_bytes) == 0);
        Matrix back(DType::kF32, 75, 201);
        path.unpack({spec, whole.data()}, 0, back.view);
        const std::vector<float> expected = ByteWeights(type, rows, 201, group);
        for (int64_t row = 0; row < 75; ++row) {
          for (int64_t i = 0; i < 201; ++i) REQUIRE(back.Get(row, i) == expected[row * 201 + i]);
        }
      }
    }
  }
}

TEST_CASE("linear: every float8 code is multiplied as the number that it is") {
  // Each code is one column's weight of an input of its own.
  const LinearSpec spec = {
      .in_features = 256, .out_features = 32, .weight_dtype = DType::kF8, .group_size = 128};
  std::vector<std::byte> rows(32 * ByteRowBytes(256, 128));
  for (int64_t row = 0; row < 32; ++row) {
    std::byte* codes = rows.data() + row * ByteRowBytes(256, 128);
    for (int code = 0; code < 256; ++code) {
      const bool number = (code & 0x7f) != kF8NotANumber;
      codes[code] = static_cast<std::byte>(number && code % 32 == row ? code : 0);
    }
    const float one[2] = {1, 1};
    std::memcpy(codes + ByteCodeBytes(256), one, sizeof(one));
  }
  for (const LinearPath& path : LinearPaths()) {
    Memory memory(path.packed_bytes(spec)), workspace(path.workspace_bytes(spec, 256));
    const PackedWeights packed = {spec, memory.data()};
    REQUIRE(path.pack(packed, 0, ByteRows(rows, 0, 32, 256, 128)).ok());
    for (const DType activation : {DType::kF32, DType::kBF16}) {
      Matrix in(activation, 256, 256), out(activation, 256, 32);
      for (int64_t i = 0; i < 256; ++i) {
        for (int64_t j = 0; j < 256; ++j) in.Set(i, j, i == j ? 1 : 0);
      }
      LinearArgs args;
      args.out = out.view;
      args.in = in.view;
      args.weights = &packed;
      args.workspace = TensorView(workspace.data(), DType::kI8, {1});
      path.run(args, TestPool());
      for (int code = 0; code < 256; ++code) {
        if ((code & 0x7f) == kF8NotANumber) continue;
        CAPTURE(path.name, Name(activation), code);
        REQUIRE(out.Get(code, code % 32) == F8ToFloat(static_cast<uint8_t>(code)));
      }
    }
  }
}

TEST_CASE(
    "linear pack: a weight that is not finite cannot be quantised, and the error says where") {
  std::mt19937 random(4);
  for (const LinearPath& path : LinearPaths()) {
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      const LinearSpec spec = {.in_features = 200, .out_features = 40, .weight_dtype = DType::kI8};
      Matrix source(DType::kF32, 40, 200);
      source.FillNormal(random);
      source.Set(17, 150, bad);
      Memory memory(path.packed_bytes(spec));
      const absl::Status status = path.pack({spec, memory.data()}, 0, source.view);
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      CHECK(std::string(status.message()).find("row 17") != std::string::npos);
      CHECK(std::string(status.message()).find("input 128") != std::string::npos);
    }
  }
}

TEST_CASE("linear pack: size is that of the weights plus scales and padding to 32 columns") {
  for (const LinearPath& path : LinearPaths()) {
    const LinearSpec f32 = {.in_features = 2048, .out_features = 5632};
    LinearSpec bf16 = f32, i8 = f32, i4 = f32;
    i4.weight_dtype = DType::kI4;
    CHECK(path.packed_bytes(i4) == 2048 * 5632 / 2 + 5632 * 16 * 4);
    LinearSpec offsets = i4;  // 5 bits a weight in blocks of a group of 32; 4 + 5/8 in ones of 8
    offsets.group_size = offsets.blocks.size = 32;
    CHECK(path.packed_bytes(offsets) == 2048 * 5632 / 8 * 5);
    offsets.blocks.size = 256;
    CHECK(path.packed_bytes(offsets) == 2048 * 5632 / 64 * 37);
    bf16.weight_dtype = DType::kBF16;
    i8.weight_dtype = DType::kI8;
    CHECK(path.packed_bytes(f32) == 2048 * 5632 * 4);
    CHECK(path.packed_bytes(bf16) == 2048 * 5632 * 2);
    CHECK(path.packed_bytes(i8) == 2048 * 5632 + 5632 * 16 * 4);
  }
}

}  // namespace
}  // namespace tessera::kernels
