// The figures of gpu_bench: ratios with bars, as a table and as a file.
//
// A figure may also have a bar in time, which one kind of GPU must keep to: an H100 (SXM). On
// others it is printed beside the same time, without a bar. Thread rule: one thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::bench {

struct Line {
  std::string name;
  double ratio = 0;
  double bar = 0, goal = 0;  // ratios; 0: there is none
  std::string detail;
};

// Seconds that what a line of this name measures may take on an H100; 0: there is no such bar.
double H100Seconds(std::string_view name);

class BenchLines {
 public:
  // Without bars nothing is missed. `kind`: of the GPU, as worker/devices/cuda/gpu_kind.h names it;
  // it may be set later, before the first AddTime.
  explicit BenchLines(bool has_bars) : has_bars_(has_bars) {}
  void set_kind(std::string kind) { kind_ = std::move(kind); }

  // Prints the line.
  void Add(Line line);
  // Adds the line "NAME, in time" where there is a bar in time for the name.
  void AddTime(const std::string& name, double seconds);

  // Prints all lines, and writes them to a file with `about`'s fields; no file where its name is
  // empty. True where no bar is missed.
  bool Report(nlohmann::json about, const std::string& json_file) const;

 private:
  bool Missed(const Line& line) const { return has_bars_ && line.ratio < line.bar; }

  const bool has_bars_;
  std::string kind_;
  std::vector<Line> lines_;
};

}  // namespace tessera::bench
