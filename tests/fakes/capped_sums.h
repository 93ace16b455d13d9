// A maker of groups whose devices take fewer bytes in one call than they could, so that steps of
// tiny models are as many pieces, or too large, as those of wide ones are elsewhere.
//
// Thread rule: that of GroupMaker. Ownership: borrows the maker.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "kernels/collectives/group_maker.h"

namespace tessera {

class CappedSums final : public kernels::DeviceSums {
 public:
  CappedSums(std::unique_ptr<kernels::DeviceSums> sums, int64_t max_bytes)
      : sums_(std::move(sums)), max_bytes_(max_bytes) {}

  int rank() const override { return sums_->rank(); }
  int size() const override { return sums_->size(); }
  int64_t max_bytes() const override { return max_bytes_; }
  std::string transport() const override { return sums_->transport(); }
  absl::Status AllReduceSum(const kernels::TensorView& values, kernels::Stream& stream) override {
    return sums_->AllReduceSum(values, stream);
  }
  absl::Status Broadcast(const kernels::TensorView& values, int root,
                         kernels::Stream& stream) override {
    return sums_->Broadcast(values, root, stream);
  }
  void Abort(const absl::Status& reason) override { sums_->Abort(reason); }
  absl::Status status() const override { return sums_->status(); }
  std::chrono::nanoseconds wait_time() const override { return sums_->wait_time(); }

 private:
  const std::unique_ptr<kernels::DeviceSums> sums_;
  const int64_t max_bytes_;
};

class CappedMaker final : public kernels::GroupMaker {
 public:
  CappedMaker(kernels::GroupMaker* maker, int64_t max_bytes)
      : maker_(maker), max_bytes_(max_bytes) {}

  std::string device_id() const override { return maker_->device_id(); }
  std::string library() const override { return maker_->library(); }
  absl::StatusOr<std::string> NewId() override { return maker_->NewId(); }
  absl::StatusOr<std::unique_ptr<kernels::Group>> Join(
      int rank, int size, const std::string& id, const kernels::GroupOptions& options,
      double join_seconds, const std::function<bool()>& cancelled) override {
    return maker_->Join(rank, size, id, options, join_seconds, cancelled);
  }
  absl::StatusOr<std::unique_ptr<kernels::DevicePair>> JoinPair(
      int rank, const std::string& id, int64_t memory_bytes, double join_seconds,
      const std::function<bool()>& cancelled) override {
    return maker_->JoinPair(rank, id, memory_bytes, join_seconds, cancelled);
  }
  std::string sums_kind() const override { return maker_->sums_kind(); }
  int64_t SumsMemoryBytes(int size) const override { return maker_->SumsMemoryBytes(size); }
  absl::StatusOr<std::unique_ptr<kernels::DeviceSums>> MapSums(
      int rank, int size, std::shared_ptr<std::byte> memory,
      const kernels::GroupOptions& options) override {
    auto sums = maker_->MapSums(rank, size, std::move(memory), options);
    if (!sums.ok()) return sums.status();
    return std::make_unique<CappedSums>(*std::move(sums), max_bytes_);
  }

 private:
  kernels::GroupMaker* const maker_;
  const int64_t max_bytes_;
};

}  // namespace tessera
