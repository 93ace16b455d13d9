#include "proto/model/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr int64_t kMinVersion = 2, kMaxVersion = 3;
constexpr int64_t kDefaultAlignment = 32, kMaxAlignment = int64_t{1} << 20;
constexpr int64_t kMaxDimensions = 4;
constexpr size_t kMaxNameShown = 120;
// What values take in memory, all together.
constexpr int64_t kMaxValueBytes = int64_t{1} << 30;

// Sizes: ggml-common.h of llama.cpp.
constexpr std::array kTypes = {GgufType{0, "F32", 1, 4},         GgufType{1, "F16", 1, 2},
                               GgufType{2, "Q4_0", 32, 18},      GgufType{3, "Q4_1", 32, 20},
                               GgufType{6, "Q5_0", 32, 22},      GgufType{7, "Q5_1", 32, 24},
                               GgufType{8, "Q8_0", 32, 34},      GgufType{9, "Q8_1", 32, 36},
                               GgufType{10, "Q2_K", 256, 84},    GgufType{11, "Q3_K", 256, 110},
                               GgufType{12, "Q4_K", 256, 144},   GgufType{13, "Q5_K", 256, 176},
                               GgufType{14, "Q6_K", 256, 210},   GgufType{15, "Q8_K", 256, 292},
                               GgufType{16, "IQ2_XXS", 256, 66}, GgufType{17, "IQ2_XS", 256, 74},
                               GgufType{18, "IQ3_XXS", 256, 98}, GgufType{19, "IQ1_S", 256, 50},
                               GgufType{20, "IQ4_NL", 32, 18},   GgufType{21, "IQ3_S", 256, 110},
                               GgufType{22, "IQ2_S", 256, 82},   GgufType{23, "IQ4_XS", 256, 136},
                               GgufType{24, "I8", 1, 1},         GgufType{25, "I16", 1, 2},
                               GgufType{26, "I32", 1, 4},        GgufType{27, "I64", 1, 8},
                               GgufType{28, "F64", 1, 8},        GgufType{29, "IQ1_M", 256, 56},
                               GgufType{30, "BF16", 1, 2},       GgufType{34, "TQ1_0", 256, 54},
                               GgufType{35, "TQ2_0", 256, 66},   GgufType{39, "MXFP4", 32, 17},
                               GgufType{40, "NVFP4", 64, 36}};

const GgufType* TypeOf(int32_t id) {
  for (const GgufType& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

// Types of values.
enum Kind : int32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12
};

// Bytes of a number; 0: it is none.
int64_t BytesOf(int32_t kind) {
  switch (kind) {
    case kU8:
    case kI8:
    case kBool: return 1;
    case kU16:
    case kI16: return 2;
    case kU32:
    case kI32:
    case kF32: return 4;
    case kU64:
    case kI64:
    case kF64: return 8;
    default: return 0;
  }
}

bool IsSigned(int32_t kind) { return kind == kI8 || kind == kI16 || kind == kI32 || kind == kI64; }
bool IsReal(int32_t kind) { return kind == kF32 || kind == kF64; }

std::string Quoted(std::string_view name) {
  return StrCat("'", name.substr(0, kMaxNameShown), name.size() > kMaxNameShown ? "...'" : "'");
}

// Reads a header front to back; the first failure stays.
class HeaderReader {
 public:
  HeaderReader(std::istream& in, int64_t file_bytes, std::string_view file)
      : in_(in), file_bytes_(file_bytes), file_(file) {}

  absl::StatusOr<GgufHeader> Read() {
    const int64_t tensors = ReadStart();
    const int64_t keys = Count("keys");
    for (int64_t i = 0; i < keys && ok(); ++i) ReadKey();
    for (int64_t i = 0; i < tensors && ok(); ++i) ReadTensor();
    place_ = "";
    if (ok()) PlaceTensors();
    if (!ok()) return status_;
    return std::move(header_);
  }

 private:
  bool ok() const { return status_.ok(); }
  int64_t Left() const { return std::min(file_bytes_, kMaxGgufHeaderBytes) - at_; }

  void Fail(std::string_view reason) {
    if (ok()) status_ = absl::InvalidArgumentError(StrCat(file_, ": ", place_, reason));
  }
  void FailEnd() {
    Fail(file_bytes_ > kMaxGgufHeaderBytes
             ? StrCat("the header is longer than ", kMaxGgufHeaderBytes, " bytes")
             : std::string("the file ends within the header: cut off, or a length in it is wrong"));
  }

  void Take(char* out, int64_t bytes) {
    if (!ok()) return;
    if (bytes > Left()) return FailEnd();
    if (!in_.read(out, bytes)) return FailEnd();
    at_ += bytes;
  }
  uint64_t Unsigned(int64_t bytes) {
    std::array<unsigned char, 8> data = {};
    Take(reinterpret_cast<char*>(data.data()), bytes);
    uint64_t value = 0;
    for (int64_t i = bytes - 1; i >= 0; --i) value = value << 8 | data[static_cast<size_t>(i)];
    return ok() ? value : 0;
  }
  int32_t Int32() { return static_cast<int32_t>(static_cast<uint32_t>(Unsigned(4))); }

  // A number of things of which each takes at least a byte.
  int64_t Count(std::string_view what) {
    const uint64_t count = Unsigned(8);
    if (ok() && count > static_cast<uint64_t>(std::max<int64_t>(0, Left()))) {
      Fail(StrCat(count, " ", what, " in ", Left(), " bytes that are left of the file's header"));
    }
    return ok() ? static_cast<int64_t>(count) : 0;
  }
  void Spend(int64_t bytes) {
    value_bytes_ += bytes;
    if (value_bytes_ > kMaxValueBytes) Fail("the values take more memory than any model's");
  }
  std::string Text() {
    const int64_t bytes = Count("bytes of text");
    Spend(bytes + static_cast<int64_t>(sizeof(std::string)));
    if (!ok()) return "";
    std::string text(static_cast<size_t>(bytes), '\0');
    Take(text.data(), bytes);
    return text;
  }

  // The number of tensors.
  int64_t ReadStart() {
    std::array<char, 4> magic = {};
    Take(magic.data(), 4);
    if (!ok() || std::string_view(magic.data(), 4) != "GGUF") {
      const bool pointer = std::string_view(magic.data(), 4) == "vers";
      status_ = absl::InvalidArgumentError(StrCat(
          file_, pointer
                     ? ": a pointer of Git LFS, not the file itself: fetch it (git lfs pull, hf "
                       "download)"
                     : ": not a GGUF file, or cut off"));
      return 0;
    }
    const auto version = static_cast<int64_t>(Unsigned(4));
    if (ok() && (version & 0xffff) == 0) {
      Fail(
          "was written with the bytes of a number in the other order (big endian); convert it "
          "again");
    } else if (ok() && (version < kMinVersion || version > kMaxVersion)) {
      Fail(StrCat("is of GGUF version ", version, "; ", kMinVersion, " and ", kMaxVersion,
                  " are read: convert it again with a present llama.cpp"));
    }
    return Count("tensors");
  }

  int64_t Integer(int32_t kind) {
    const int64_t bytes = BytesOf(kind);
    const uint64_t value = Unsigned(bytes);
    if (IsSigned(kind)) {
      const int unused_bits = static_cast<int>(64 - 8 * bytes);
      return static_cast<int64_t>(value << unused_bits) >> unused_bits;
    }
    return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
  }
  double Real(int32_t kind) {
    const uint64_t bits = Unsigned(BytesOf(kind));
    if (kind == kF64) return std::bit_cast<double>(bits);
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  }

  GgufValue Value(int32_t kind) {
    Spend(static_cast<int64_t>(sizeof(GgufValue)));
    if (kind == kString) return Text();
    if (kind == kArray) return List();
    if (IsReal(kind)) return Real(kind);
    if (BytesOf(kind) == 0) Fail(StrCat("has a value of the unknown type ", kind));
    return ok() ? Integer(kind) : int64_t{0};
  }

  GgufValue List() {
    const int32_t kind = Int32();
    if (ok() && kind != kString && BytesOf(kind) == 0) {
      Fail(kind == kArray ? std::string("is a list of lists: not supported")
                          : StrCat("is a list of the unknown type ", kind));
    }
    const int64_t count = Count("values");
    if (ok() && kind != kString && count > Left() / BytesOf(kind)) FailEnd();
    if (!ok()) return int64_t{0};
    if (kind == kString) {
      std::vector<std::string> texts;
      for (int64_t i = 0; i < count && ok(); ++i) texts.push_back(Text());
      return texts;
    }
    Spend(8 * count);
    if (IsReal(kind)) {
      std::vector<double> numbers;
      for (int64_t i = 0; i < count && ok(); ++i) numbers.push_back(Real(kind));
      return numbers;
    }
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < count && ok(); ++i) numbers.push_back(Integer(kind));
    return numbers;
  }

  void ReadKey() {
    place_ = "a key: ";
    std::string key = Text();
    if (ok() && key.empty()) Fail("has no name");
    if (!ok()) return;
    place_ = StrCat("key ", Quoted(key), ": ");
    GgufValue value = Value(Int32());
    if (ok() && !header_.keys.emplace(std::move(key), std::move(value)).second) {
      Fail("is there twice");
    }
  }

  void ReadTensor() {
    place_ = "a tensor: ";
    GgufTensor tensor;
    tensor.name = Text();
    if (!ok()) return;
    place_ = StrCat("tensor ", Quoted(tensor.name), ": ");
    if (tensor.name.empty()) Fail("has no name");
    if (!names_.insert(tensor.name).second) Fail("is there twice");
    const auto dimensions = static_cast<int64_t>(Unsigned(4));
    if (ok() && (dimensions < 1 || dimensions > kMaxDimensions)) {
      Fail(StrCat("has ", dimensions, " dimensions; 1 to ", kMaxDimensions, " are possible"));
    }
    for (int64_t i = 0; i < dimensions && ok(); ++i) {
      const uint64_t size = Unsigned(8);
      if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        Fail("a size is negative or too large");
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
    }
    const int32_t type = Int32();
    const uint64_t offset = Unsigned(8);
    if (!ok()) return;
    tensor.type = TypeOf(type);
    if (tensor.type == nullptr) {
      return Fail(StrCat("is of type ", type, ", which no present version of GGUF has"));
    }
    if (offset > static_cast<uint64_t>(file_bytes_)) return FailPlace();
    tensor.begin = static_cast<int64_t>(offset);
    Spend(static_cast<int64_t>(sizeof(GgufTensor)));
    header_.tensors.push_back(std::move(tensor));
  }

  void FailPlace() { Fail("its bytes lie beyond the end of the file: cut off"); }

  // nullopt: the sizes are impossible; says so.
  std::optional<int64_t> DataBytes(const GgufTensor& tensor) {
    const GgufType& type = *tensor.type;
    if (tensor.shape.back() % type.values != 0) {
      Fail(StrCat("has rows of ", tensor.shape.back(), " values; ", type.name, " has blocks of ",
                  type.values));
      return std::nullopt;
    }
    int64_t bytes = tensor.shape.back() / type.values;
    bool fits = !__builtin_mul_overflow(bytes, type.bytes, &bytes);
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
      fits = fits && !__builtin_mul_overflow(bytes, tensor.shape[i], &bytes);
    }
    if (fits) return bytes;
    Fail("the shape is too large");
    return std::nullopt;
  }

  // Offsets become places in the file; each tensor begins where the one before ends, aligned.
  void PlaceTensors() {
    int64_t alignment = kDefaultAlignment;
    if (const auto* given = header_.Find<int64_t>("general.alignment")) alignment = *given;
    if (alignment < 1 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
      return Fail(StrCat("key 'general.alignment': ", alignment, " is no power of two up to ",
                         kMaxAlignment));
    }
    const auto aligned = [alignment](int64_t at) { return (at + alignment - 1) & -alignment; };
    header_.data_begin = aligned(at_);
    int64_t expected = 0;
    for (GgufTensor& tensor : header_.tensors) {
      place_ = StrCat("tensor ", Quoted(tensor.name), ": ");
      const std::optional<int64_t> bytes = DataBytes(tensor);
      if (!bytes) return;
      if (tensor.begin != expected) {
        return Fail(StrCat("begins at ", tensor.begin, " of the data, where the tensors before it ",
                           "end at ", expected));
      }
      if (*bytes > file_bytes_ - header_.data_begin - expected) return FailPlace();
      tensor.begin += header_.data_begin;
      tensor.end = tensor.begin + *bytes;
      expected = aligned(expected + *bytes);
    }
  }

  std::istream& in_;
  const int64_t file_bytes_;
  const std::string file_;
  int64_t at_ = 0;
  int64_t value_bytes_ = 0;
  std::string place_;  // before a failure's reason
  std::set<std::string> names_;
  GgufHeader header_;
  absl::Status status_;
};

}  // namespace

const GgufType* FindGgufType(std::string_view name) {
  for (const GgufType& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

const GgufTensor* GgufHeader::FindTensor(std::string_view name) const {
  for (const GgufTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

absl::StatusOr<GgufHeader> ParseGgufHeader(std::istream& in, int64_t file_bytes,
                                           std::string_view file) {
  return HeaderReader(in, file_bytes, file).Read();
}

absl::StatusOr<GgufHeader> ReadGgufHeader(const std::filesystem::path& path) {
  std::error_code error;
  const auto file_bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
  std::ifstream in(path, std::ios::binary);
  if (error || !in) return absl::NotFoundError(StrCat(path.string(), ": cannot be read"));
  return ParseGgufHeader(in, file_bytes, path.string());
}

bool HasGgufName(std::string_view path) {
  return absl::EndsWithIgnoreCase(AbslView(path), ".gguf");
}

}  // namespace tessera
