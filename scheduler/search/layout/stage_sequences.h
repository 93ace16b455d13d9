// Is there a pipeline of S stages within these seconds? The test inside layout_bound.
//
// Problem: devices in pools; a stage is some devices of one pool (its type) and holds between one
// and `most` layers, each of them some seconds; stages hand over at the cost of the link between
// their machines. Wanted is an order of S stages that holds all layers with a sum of seconds within
// a limit. Idea: for a price lambda per layer the cheapest order comes from a dynamic program over
// (stages, devices used, machine of the last stage), for every machine of the first stage; with the
// price that costs most this is a lower bound of the sum (Lagrange), and layers dealt to the order
// it names, cheapest first, are an upper one. Where neither decides, orders are tried one by one,
// those that the tables exclude left out. Complexity: machines^2 * S * device states * types per
// price. Deterministic. Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/search/layout/stage_layout.h"
#include "scheduler/search/layout/stage_shapes.h"

namespace tessera::scheduler {

// Devices of one pool that make a stage.
struct StageType {
  int pool = 0;  // of the layout problem
  int width = 0;
  int shape = 0;    // index into StageShapes
  int machine = 0;  // 0, 1, ...: of those that the pools stand in
  int used = 0;     // devices, as a number with the pools' digits
};

struct SequenceLimits {
  int stages = 0;
  int layers = 0;
  double sum_seconds = 0;
  // By type; `most` by StagePlace and type, 0: cannot stand there.
  std::vector<double> fixed_seconds, layer_seconds, head_seconds;
  std::vector<int> most[4];
  std::vector<double> hop_seconds;   // [machine * types + type]: into it; infinite: too slow
  std::vector<double> back_seconds;  // [last machine * machines + first machine]
};

enum class Verdict { kNone, kFound, kUnknown };

class StageSequences {
 public:
  // Borrows nothing. `states`: of devices used.
  StageSequences(std::vector<StageType> types, const std::vector<LayoutPool>& pools, int machines);

  // kFound: *stages is such a pipeline. kUnknown: the orders were too many to try.
  Verdict Test(const SequenceLimits& limits, std::vector<LayoutStage>* stages);

 private:
  struct Table {
    double price = 0;
    std::vector<double> cost[4];  // by place and type
    std::vector<double> value;    // by first machine, stages, used, last machine
  };

  size_t At(int first, int stages, int used) const {
    return ((static_cast<size_t>(first) * static_cast<size_t>(depth_) +
             static_cast<size_t>(stages)) *
                static_cast<size_t>(states_) +
            static_cast<size_t>(used)) *
           static_cast<size_t>(machines_);
  }
  bool Has(int used, size_t type) const {
    return has_[type * static_cast<size_t>(states_) + static_cast<size_t>(used)];
  }
  StagePlace PlaceOf(int stage) const;
  void SetCosts(double price, Table* table) const;
  void SetRooms(Table* table) const;
  void Fill(const std::vector<double>& hops, Table* table) const;
  double Least(const Table& table, bool with_back, std::vector<int>* order) const;
  void Trace(const Table& table, int first, int used, int last, std::vector<int>* order) const;
  double Deal(const std::vector<int>& order, std::vector<LayoutStage>* stages) const;
  int LayersAtPrice(const std::vector<int>& order, double price) const;
  Verdict Bisect(std::vector<LayoutStage>* stages);
  bool Try(int stage, int used, int first, double suffix, double suffix_room);
  double Best(const Table& table, const std::vector<double>& hops, int stage, int used, int first,
              size_t type) const;

  const std::vector<StageType> types_;
  const int machines_;
  int states_ = 1;
  int depth_ = 1;                                    // most stages, and one
  std::vector<char> has_;                            // by type and used
  std::vector<std::vector<int>> reached_;            // devices used by that many stages
  std::vector<std::vector<std::vector<int>>> ends_;  // the same, by the type of the last of them
  const SequenceLimits* limits_ = nullptr;
  std::vector<double> open_hops_;  // 0 where the hop is fast enough
  Table rooms_, priced_, dearest_;
  double dearest_value_ = 0;
  size_t decisive_ = SIZE_MAX;  // of the prices in order, the last one that was tried
  // The order in hand while orders are tried one by one.
  std::vector<int> order_;
  std::vector<LayoutStage> found_;
  int tried_ = 0;
};

}  // namespace tessera::scheduler
