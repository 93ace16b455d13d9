#include "worker/weights/decay_rows.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "third_party/absl/str_cat.h"
#include "worker/weights/element_floats.h"

namespace tessera::worker {
namespace {

class RateNumbers : public RowSource {
 public:
  explicit RateNumbers(std::shared_ptr<const RowSource> source) : source_(std::move(source)) {}

  std::string Describe() const override { return source_->Describe(); }
  absl::StatusOr<RowForm> FormOf(const IndexRange& /*columns*/) const override { return RowForm{}; }

  absl::Status Read(const IndexRange& rows, const IndexRange& columns, const RowForm& /*form*/,
                    RowScratch* scratch, std::byte* out) const override {
    const auto form = source_->FormOf(columns);
    if (!form.ok()) return form.status();
    const int64_t size = kernels::SizeInBytes(form->dtype);
    std::vector<std::byte> rates(static_cast<size_t>(rows.size() * size));
    absl::Status status = source_->Read(rows, columns, *form, scratch, rates.data());
    for (int64_t i = 0; i < rows.size() && status.ok(); ++i) {
      const float rate = FloatAt(form->dtype, rates.data() + i * size);
      if (!(rate < 0) || !std::isfinite(rate)) {
        return absl::InvalidArgumentError(
            StrCat("number ", rows.begin + i, " is ", rate, "; rates of decay are below 0"));
      }
      const float value = std::log(-rate);
      std::memcpy(out + i * static_cast<int64_t>(sizeof(value)), &value, sizeof(value));
    }
    return status;
  }

 private:
  const std::shared_ptr<const RowSource> source_;
};

}  // namespace

std::shared_ptr<const RowSource> LogOfRates(std::shared_ptr<const RowSource> source) {
  return std::make_shared<RateNumbers>(std::move(source));
}

}  // namespace tessera::worker
