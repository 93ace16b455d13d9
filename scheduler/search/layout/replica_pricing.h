// The replica that serves most per price of its devices: the pricing problem of the configuration
// program, with a certificate.
//
// Problem: classes of devices have prices; over all legal replicas of a role (any number of stages,
// of any classes, widths and layers) find those of the highest rate / price of devices, and prove
// how high it can be. Idea: branch and bound over boxes (number of stages, rows b1..b2 per
// micro-batch, period per row p1..p2). A step's seconds grow with its rows, but less than in
// proportion, and KV grows with rows; so in a box a stage holds at most what (p2, b2) leaves in
// seconds and b1 in bytes, a cover program says the least price of stages that hold all layers,
// and 1 / p1 bounds the rate. Hops are those of the best links that the classes allow, and are
// priced into the sum that a period must cover. A pipeline over several machines enters each of
// them from another one (the first with token ids only), so every stage bears at least the part of
// that hop that it takes of its machine; replicas within one machine have boxes of their own. Boxes
// are split, best first, until the bound is within the tolerance of a replica that was found, or
// they are as small as they get. Where KV holds fewer sequences than stages, boxes are by
// micro-batches instead, of any number of stages.
// Deterministic. Thread rule: one thread per object; borrows classes and shapes.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "scheduler/search/layout/class_replica.h"
#include "scheduler/search/math/cover_program.h"

namespace tessera::scheduler {

struct PricingQuery {
  Role role = Role::kBoth;
  std::vector<double> prices;  // by class, of one device; above 0
  int group = -1;              // replicas within this group; -1: over two or more
  int only_class = -1;         // replicas of this class alone, as many devices as it takes
  double target = 0;           // ratios below are of no interest
  double known_bound = 0;      // what other queries leave anyway: not worth getting below
  double tolerance = 0.01;     // relative, of the bound
  bool certify = true;         // false: only columns are wanted, the bound means nothing
  int max_boxes = 20000;       // split at most; beyond, the bound stays as it is
};

struct PricingAnswer {
  double bound = 0;    // no legal replica has a higher rate / price (or target, if above)
  double reached = 0;  // by a replica that was found (or target, if above)
  // Above the target, or near it and of no more devices than there are.
  std::vector<ClassReplica> found;
  int boxes = 0;
};

class ReplicaPricing {
 public:
  ReplicaPricing(const DeviceClasses& classes, StageShapes* shapes);
  PricingAnswer Run(const PricingQuery& query);

 private:
  struct StageType {
    int shape = 0;
    int device_class = 0;
    double price = 0;
    LinkSpec in;            // best from any stage
    LinkSpec apart;         // best from another machine
    double of_machine = 1;  // least part of its machine that a stage takes
  };
  struct Box {
    int machine = -1;  // shape of the one machine that holds all stages; -1: over several
    int stages = 0;    // 0: any number, above micro_batches
    int micro_batches = 0;
    int low = 0, high = 0;      // of rows, on the grid
    double fast = 0, slow = 0;  // seconds per row: of the period
    double bound = 0;
    bool operator<(const Box& other) const { return bound < other.bound; }
  };

  void MakeTypes();
  LinkSpec BestFromApart(int device_class) const;
  void AddTypes(int device_class);
  void MakeCrossing();

  double RowsLow(const Box& box) const;
  double RowsHigh(const Box& box) const;
  double KvTokens(const Box& box) const;
  void PushRoots();
  void PushRootsOn(int machine, int devices);
  void PushRoot(int machine, int stages, int micro_batches);
  void Push(Box box);
  void Split(const Box& box);
  bool CanSplitRows(const Box& box) const;
  // Types that the box's stages may have.
  const std::vector<int>& TypesOf(const Box& box) const {
    return box.machine < 0 ? spread_ : on_machine_[static_cast<size_t>(box.machine)];
  }
  // Into a stage, for activations of one step.
  struct Hop {
    double token_ids = 0, activations = 0;  // from where it is fastest
    double apart_more = 0;                  // of activations, from another machine
  };
  struct Hops {
    std::vector<Hop> of_type;
    double most_apart = 0, crossing = 0;
  };
  const Hops& HopsAt(double rows);
  std::vector<CoverItem> Items(const Box& box, StagePlace place);
  double SumLimit(const Box& box);
  CoverProgram::Solution Cover(const Box& box);
  std::vector<CoverProgram::Stage> Mixed(const CoverProgram::Solution& breaks,
                                         const CoverProgram::Solution& keeps, double limit) const;
  CoverProgram::Solution OneStage(const Box& box);
  double Interest() const;
  double BoundOf(const Box& box, double price) const;
  void Consider(const Box& box, const CoverProgram::Solution& solution);
  // What a replica of these stages is judged with: decode rows and tokens of KV.
  std::pair<double, double> LoadOf(const Box& box, const std::vector<int>& types) const;
  double Judge(std::pair<double, double> load, const std::vector<int>& types,
               ClassReplica* replica);
  bool Overdrawn(const std::vector<int>& types) const;
  bool WithinCounts(const Box& box, std::vector<int>* types);

  const DeviceClasses& classes_;
  StageShapes& shapes_;
  CoverProgram cover_;
  // Types of replicas that were judged, with their load where it is that of their box.
  absl::flat_hash_set<std::vector<int>> seen_;
  absl::flat_hash_set<std::pair<std::pair<double, double>, std::vector<int>>> seen_with_load_;
  std::vector<std::vector<int>> shape_of_;  // by class, by width - 1

  // The query at hand.
  const PricingQuery* query_ = nullptr;
  std::vector<StageType> types_;
  std::vector<int> spread_;                   // the cheapest of like types
  std::vector<std::vector<int>> on_machine_;  // by machine shape
  LinkSpec crossing_;                         // best between two groups
  std::map<double, Hops> hops_;               // by rows
  double output_ = 0;                         // requests per row of a period
  bool prompts_only_ = false;
  double limit_tpot_ = 0;
  double best_ = 0;
  std::vector<Box> heap_;
  double closed_ = 0;  // highest bound of a box that is not looked into any more
  PricingAnswer answer_;
};

}  // namespace tessera::scheduler
