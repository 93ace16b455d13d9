// What two machines compare before they serve one model together.
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <system_error>

#include "proto/file_text.h"
#include "proto/json_reader.h"
#include "proto/model/gguf_header.h"
#include "proto/model/model_folder.h"
#include "proto/model/weight_files.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Weights are hashed whole up to here; of larger files, this many pieces spread over them evenly.
// Another training run changes all of them; to read everything would take as long as loading.
constexpr int64_t kWholeBytes = int64_t{16} << 20;
constexpr int64_t kPieces = 32;
constexpr int64_t kPieceBytes = int64_t{128} << 10;

constexpr int64_t kMaxHeaderBytes = int64_t{128} << 20;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  // Lengths are hashed too, so that no two lists of pieces look alike.
  void Add(std::string_view piece) {
    const uint64_t size = piece.size();
    EVP_DigestUpdate(context_.get(), &size, sizeof(size));
    EVP_DigestUpdate(context_.get(), piece.data(), piece.size());
  }
  std::string Hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
    std::string hex;
    for (unsigned int i = 0; i < size; ++i) {
      hex += "0123456789abcdef"[digest[i] >> 4];
      hex += "0123456789abcdef"[digest[i] & 15];
    }
    return hex;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

// The first 8 bytes say how long the header behind them is, little endian.
absl::StatusOr<std::string> SafetensorsHeader(const fs::path& path, int64_t file_bytes) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::array<unsigned char, 8> prefix;
  if (!file.read(reinterpret_cast<char*>(prefix.data()), prefix.size())) {
    return absl::InvalidArgumentError(StrCat(
        path.string(), ": ",
        errno == 0 ? "cut off" : "cannot be read: ", errno == 0 ? "" : std::strerror(errno)));
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | prefix[i];
  if (length > static_cast<uint64_t>(std::min(kMaxHeaderBytes, file_bytes - 8))) {
    return absl::InvalidArgumentError(StrCat(path.string(), ": a header of ", length,
                                             " bytes in a file of ", file_bytes,
                                             ": not a safetensors file, or cut off"));
  }
  std::string header(length, '\0');
  if (!file.read(header.data(), static_cast<std::streamsize>(length))) {
    return absl::InvalidArgumentError(StrCat(path.string(), ": header cannot be read"));
  }
  return header;
}

// All bytes before the data.
absl::StatusOr<std::string> GgufHeaderBytes(const fs::path& path) {
  absl::StatusOr<GgufHeader> header = ReadGgufHeader(path);
  if (!header.ok()) return header.status();
  std::string bytes(static_cast<size_t>(header->data_begin), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), header->data_begin);
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

absl::Status AddWeights(const fs::path& path, int64_t file_bytes, Sha256& hash) {
  std::ifstream file(path, std::ios::binary);
  const bool whole = file_bytes <= kWholeBytes;
  const int64_t pieces = whole ? (file_bytes + kPieceBytes - 1) / kPieceBytes : kPieces;
  const int64_t stride = whole ? kPieceBytes : (file_bytes - kPieceBytes) / (kPieces - 1);
  std::string piece;
  for (int64_t i = 0; i < pieces; ++i) {
    piece.resize(static_cast<size_t>(std::min(kPieceBytes, file_bytes - i * stride)));
    file.seekg(i * stride);
    if (!file.read(piece.data(), static_cast<std::streamsize>(piece.size()))) {
      return absl::InvalidArgumentError(
          StrCat(path.string(), ": cannot be read at byte ", i * stride, ", or cut off meanwhile"));
    }
    hash.Add(piece);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> Fingerprint(const fs::path& model) {
  const bool gguf = HasGgufName(model.string());
  absl::StatusOr<std::string> config =
      gguf ? std::string("GGUF") : ReadFileText(model / "config.json", kMaxJsonBytes);
  if (!config.ok()) return config.status();
  absl::StatusOr<std::vector<fs::path>> paths = WeightFiles(model);
  if (!paths.ok()) return paths.status();

  Sha256 hash;
  hash.Add(*config);
  for (const fs::path& path : *paths) {
    std::error_code error;
    const auto file_bytes = static_cast<int64_t>(fs::file_size(path, error));
    if (error) return absl::NotFoundError(StrCat(path.string(), ": ", error.message()));
    absl::StatusOr<std::string> header =
        gguf ? GgufHeaderBytes(path) : SafetensorsHeader(path, file_bytes);
    if (!header.ok()) return header.status();
    // A GGUF file may be renamed; the files of a folder are named by its index.
    if (!gguf) hash.Add(path.filename().string());
    hash.Add(std::to_string(file_bytes));
    hash.Add(*header);
    if (absl::Status s = AddWeights(path, file_bytes, hash); !s.ok()) return s;
  }
  return hash.Hex();
}

}  // namespace tessera
