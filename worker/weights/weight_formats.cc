#include "worker/weights/weight_formats.h"

#include <array>
#include <string>

#include "third_party/absl/str_cat.h"
#include "worker/weights/awq_gptq_rows.h"
#include "worker/weights/plain_rows.h"

namespace tessera::worker {
namespace {

struct WeightFormat {
  // Whether the checkpoint holds the matrix `name` in this format.
  bool (*holds)(const Checkpoint& checkpoint, const v1::Model& model, std::string_view name);
  absl::StatusOr<std::shared_ptr<const RowSource>> (*open)(const Checkpoint& checkpoint,
                                                           const v1::Model& model,
                                                           std::string_view name, int64_t rows,
                                                           int64_t columns);
};

// The first that holds a matrix opens it; the last takes what is left.
constexpr std::array kFormats = {
    WeightFormat{.holds = HoldsAwqGptq, .open = OpenAwqGptq},
    WeightFormat{
        .holds = [](const Checkpoint&, const v1::Model&, std::string_view) { return true; },
        .open =
            [](const Checkpoint& checkpoint, const v1::Model&, std::string_view name, int64_t rows,
               int64_t columns) {
              return OpenPlain(checkpoint, StrCat(name, ".weight"), {rows, columns});
            }}};

}  // namespace

absl::StatusOr<std::shared_ptr<const RowSource>> OpenMatrix(const Checkpoint& checkpoint,
                                                            const v1::Model& model,
                                                            std::string_view name, int64_t rows,
                                                            int64_t columns) {
  size_t format = 0;
  while (!kFormats[format].holds(checkpoint, model, name)) ++format;
  return kFormats[format].open(checkpoint, model, name, rows, columns);
}

}  // namespace tessera::worker
