// What was measured of one device and is kept from start to start: which of several equal ways of
// a launch is the fastest, and how fast the device multiplies.
//
// A table belongs to one device, driver, library and build, which `identity` names. Its file is
// text: that line, then a line for each choice and rate. A file of another identity, or one that
// cannot be read, counts as none. Every start may spend kBudgetSeconds on measurements; what it
// leaves out is for the next one. Thread-safe; one measurement at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::kernels {

class TuningTable {
 public:
  static constexpr double kBudgetSeconds = 5;
  // Another choice than the first must be faster by this part of its time: noise changes none.
  static constexpr double kMinGain = 0.02;

  struct Rate {
    std::string weights;  // as ProductRate of proto/cluster.proto names it
    int64_t rows = 0;
    double read_bytes_per_second = 0;
  };
  // Seconds that choice i takes; an error: it cannot be used.
  using Timed = std::function<absl::StatusOr<double>(int choice)>;

  // `identity`: one line. `file`: read now, and written by Save, with the folders that it needs;
  // empty: nothing is kept. `clock`: seconds of a steady clock; null: the system's.
  TuningTable(std::string file, std::string identity, std::function<double()> clock = nullptr);

  // The choice of 0 to `choices` - 1 that is kept for `key`, which has no spaces; else the fastest,
  // measured now and kept; else, where the budget is spent or no choice can be used, 0.
  int Choose(const std::string& key, int choices, const Timed& timed);

  std::vector<Rate> rates() const;
  void set_rates(std::vector<Rate> rates);
  // Seconds of the budget that are left; Spend takes what measuring rates took.
  double seconds_left() const;
  double spent_seconds() const;
  void Spend(double seconds);

  // Writes what is new. Errors name the file.
  absl::Status Save();
  // For people: "tuned: 34 choices, 30 of them measured at this start, 0.84 s spent".
  std::string Describe() const;

 private:
  struct Choice {
    int index = 0;
    double seconds = 0;
  };

  void Read();
  std::string Text() const;

  const std::string file_, identity_;
  const std::function<double()> clock_;
  mutable std::mutex mutex_;
  std::map<std::string, Choice> choices_;
  std::vector<Rate> rates_;
  bool changed_ = false;
  int64_t measured_ = 0, left_out_ = 0;  // choices at this start
  double spent_seconds_ = 0;
};

// Where a user's tables are: in the cache folder that XDG_CACHE_HOME names, or ~/.cache. Empty:
// neither is known.
std::string UsualTuningFolder();

}  // namespace tessera::kernels
