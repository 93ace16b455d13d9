#include "kernels/tuning_table.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeader = "tessera tuning 1: ";
constexpr std::string_view kEnd = "end";  // a file without it was cut

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string Number(double value, const char* format) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

bool IsRate(double value) { return value > 0 && std::isfinite(value); }

}  // namespace

TuningTable::TuningTable(std::string file, std::string identity, std::function<double()> clock)
    : file_(std::move(file)),
      identity_(std::move(identity)),
      clock_(clock ? std::move(clock) : std::function<double()>(&Now)) {
  if (!file_.empty()) Read();
}

void TuningTable::Read() {
  std::ifstream in(file_);
  std::string line;
  if (!std::getline(in, line) || line != StrCat(kHeader, identity_)) return;
  std::map<std::string, Choice> choices;
  std::vector<Rate> rates;
  bool whole = false;
  while (std::getline(in, line)) {
    whole = line == kEnd;
    std::istringstream fields(line);
    std::string what, name;
    int64_t number = 0;
    double value = 0;
    if (!(fields >> what >> name >> number >> value) || !IsRate(value)) continue;
    if (number < 0 || number > INT_MAX) continue;
    if (what == "choice") choices[name] = {static_cast<int>(number), value};
    if (what == "rate") rates.push_back({name, number, value});
  }
  if (!whole) return;
  choices_ = std::move(choices);
  rates_ = std::move(rates);
}

int TuningTable::Choose(const std::string& key, int choices, const Timed& timed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto kept = choices_.find(key);
  if (kept != choices_.end() && kept->second.index < choices) return kept->second.index;
  if (choices < 2) return 0;
  if (spent_seconds_ >= kBudgetSeconds) {
    ++left_out_;
    return 0;
  }
  const double begin = clock_();
  Choice best;
  for (int i = 0; i < choices; ++i) {
    const absl::StatusOr<double> seconds = timed(i);
    if (!seconds.ok() || !IsRate(*seconds)) continue;
    if (!IsRate(best.seconds) || *seconds < (1 - kMinGain) * best.seconds) best = {i, *seconds};
  }
  spent_seconds_ += clock_() - begin;
  if (!IsRate(best.seconds)) return 0;
  choices_[key] = best;
  changed_ = true;
  ++measured_;
  return best.index;
}

std::vector<TuningTable::Rate> TuningTable::rates() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return rates_;
}

void TuningTable::set_rates(std::vector<Rate> rates) {
  const std::lock_guard<std::mutex> lock(mutex_);
  rates_ = std::move(rates);
  changed_ = true;
}

double TuningTable::seconds_left() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::max(0.0, kBudgetSeconds - spent_seconds_);
}

double TuningTable::spent_seconds() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return spent_seconds_;
}

void TuningTable::Spend(double seconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  spent_seconds_ += seconds;
}

std::string TuningTable::Text() const {
  std::string text = StrCat(kHeader, identity_, "\n");
  for (const auto& [key, choice] : choices_) {
    text += StrCat("choice ", key, " ", choice.index, " ", Number(choice.seconds, "%.9g"), "\n");
  }
  for (const Rate& rate : rates_) {
    text += StrCat("rate ", rate.weights, " ", rate.rows, " ",
                   Number(rate.read_bytes_per_second, "%.9g"), "\n");
  }
  return text + std::string(kEnd) + "\n";
}

absl::Status TuningTable::Save() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (file_.empty() || !changed_) return absl::OkStatus();
  changed_ = false;  // also where it fails: the next start measures again
  std::error_code failed;
  fs::create_directories(fs::path(file_).parent_path(), failed);
  // Two workers of one device may write at once, in containers with equal process ids, too: each
  // has a file of its own until it is whole.
  std::random_device random;
  const std::string partial = StrCat(file_, ".", getpid(), "-", random(), "-", random());
  const bool written = (std::ofstream(partial) << Text()).flush().good();
  if (written) fs::rename(partial, file_, failed);
  if (written && !failed) return absl::OkStatus();
  std::error_code ignored;
  fs::remove(partial, ignored);
  return absl::UnavailableError(
      StrCat("what was measured of the device cannot be kept in ", file_,
             ": the next start measures again; --tuning-folder names another folder"));
}

std::string TuningTable::Describe() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text =
      StrCat("tuned: ", choices_.size(), choices_.size() == 1 ? " choice" : " choices");
  if (measured_ > 0) text += StrCat(", ", measured_, " of them measured at this start");
  if (spent_seconds_ > 0) text += StrCat(", ", Number(spent_seconds_, "%.2f"), " s spent");
  if (left_out_ > 0) text += StrCat(", ", left_out_, " left to the next start");
  return text;
}

std::string UsualTuningFolder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return StrCat(cache, "/tessera/tuning");
  const char* const home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : StrCat(home, "/.cache/tessera/tuning");
}

}  // namespace tessera::kernels
