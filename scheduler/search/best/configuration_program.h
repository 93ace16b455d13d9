// The configuration program: which replicas, how many of each, on devices counted by class; its
// relaxation bounds every placement.
//
// Problem: a column is any legal replica (role, devices by class, layout) with the rate that
// memory, KV limit, headroom and TPOT leave it, inside links at the best its classes allow, KV
// links left out. Maximise theta: prefill and decode columns each serve theta less what columns of
// role both serve, columns take no more devices of a class than there are, and no more money than
// the budget. Idea: column generation; columns come from replica_pricing at the program's duals.
// From any duals pi (devices), mu (budget) and lambda (phases, of sum 1): with kappa the highest
// (rate * lambda of its role) / (pi of its devices + mu of its cost) of any legal column,
//   U = kappa * (sum_k pi_k * n_k + mu * budget)
// is at least what any placement serves, since each of its replicas serves at most kappa times the
// price of its devices. kappa comes over-estimated from the pricing, so U holds whether or not the
// columns are all there. Within a budget the sum need not be taken over all devices: U = kappa *
// the most that pi + mu * price come to on devices that can be rented together (rental_sets),
// machines with a price as a whole. Deterministic. Thread rule: one thread per object; borrows its
// problem.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "scheduler/search/best/column_program.h"
#include "scheduler/search/layout/class_replica.h"
#include "scheduler/search/layout/replica_pricing.h"

namespace tessera::scheduler {

// Roles of the columns that a placement may be made of.
enum class RolesWanted {
  kAll,
  kWhole,  // that prefill and decode
  kSplit,  // that only prefill or only decode
};
RolesWanted RolesOf(const PlacementProblem& problem);  // kAll or kWhole, as it allows
// The worth of a request that a replica of this role serves, where prefilling one is worth
// `prefill` of it.
double WorthOfRole(Role role, double prefill);

struct ConfigurationOptions {
  RolesWanted roles = RolesWanted::kAll;
  double gap = 0.003;  // between the relaxation and the bound, at which generation stops
  int max_rounds = 60;
  int max_boxes = 20000;     // of a pricing
  size_t per_pricing = 0;    // columns kept of each pricing, the last and best; 0: all
  bool certify = true;       // false: columns are wanted, there will be no bound
  int last_boxes = 0;        // of the pricings that sharpen the best bound at the end; 0: none do
  int64_t boxes_before = 0;  // of all rounds that bound before those; 0: any number
};

class ConfigurationProgram {
 public:
  struct Duals {
    std::vector<double> devices;  // by class
    double budget = 0;
    double prefill = 0.5;  // and 1 - prefill for decode
  };

  // `shapes` and `classes` must outlive it.
  ConfigurationProgram(const PlacementProblem& problem, const DeviceClasses& classes,
                       StageShapes* shapes);

  // Generates columns until bound() and value() meet, or no column improves. Columns that were
  // added before are where it begins.
  void Generate(const ConfigurationOptions& options);

  double bound() const { return bound_; }  // U, in requests per second; infinite before Generate
  double value() const { return value_; }  // of the relaxation over the columns so far
  const std::vector<ClassReplica>& columns() const { return columns_; }
  const std::vector<double>& shares() const { return shares_; }  // of columns, in the relaxation
  const std::vector<double>& device_prices() const { return duals_.devices; }  // by class
  // What a device of each class brings, its money included: no column serves more than its devices.
  std::vector<double> device_worths() const { return PricesOf(duals_); }
  int64_t bound_boxes() const { return bound_boxes_; }  // split by pricings that bound

  // kappa at these duals, over-estimated, or `target` where that is above. Columns that come near
  // are added; `better` is set where one improves the program.
  double Kappa(const Duals& at, const ConfigurationOptions& options, double tolerance,
               double target, bool* better);

  void Add(ClassReplica replica);  // unless it is known
  // Columns of a program over other classes, made of ours that are like them, at most `most`, those
  // that come closest to their price there.
  void AddLike(const ConfigurationProgram& other, size_t most);
  // Solves the relaxation over the columns so far again; its value.
  double Relax(RolesWanted roles);
  // What the columns serve, cut as in the relaxation, on so many devices of each class, whatever
  // they cost.
  double ServedBy(const std::vector<int>& devices, RolesWanted roles) const;
  // Whole numbers of columns, for the problem's goal, of those that there are devices for and that
  // come closest to their price, at most `max_nodes` branchings. Empty: none was found.
  std::vector<int> Whole(RolesWanted roles, double gap, int max_nodes) const;
  // Columns that are best by what they cost in USD.
  void GenerateByCost();

 private:
  void AddEverywhere(ClassReplica replica);
  Duals FirstGuess(const ConfigurationOptions& options);
  bool Prices(Role role, const ConfigurationOptions& options) const;
  Duals Smoothed(const Duals& best) const;
  std::optional<Duals> GenerateWhole(const ConfigurationOptions& options);
  bool GenerateQuickly(const ConfigurationOptions& options);
  double WorthOf(const Duals& duals) const;    // of all devices and the budget
  double BoundOn(const Duals& duals) const;    // the same of what can be rented together
  double PriceOf(const Column& column) const;  // at the relaxation's duals
  std::vector<size_t> Promising(RolesWanted roles, size_t most) const;
  bool PriceRound(const Duals& at, const ConfigurationOptions& options, double tolerance);
  std::vector<double> PricesOf(const Duals& duals) const;
  Column ColumnOf(const ClassReplica& replica) const;
  ColumnTerms Terms() const;
  bool budgeted() const { return problem_.goal == Goal::kBudget; }

  const PlacementProblem& problem_;
  const DeviceClasses& classes_;
  StageShapes& shapes_;
  ReplicaPricing pricing_;
  std::vector<ClassReplica> columns_;
  std::vector<Column> counted_;  // the same, as the program counts them
  std::map<std::pair<Role, std::vector<int>>, size_t> column_of_;  // by role and devices
  std::vector<std::vector<int>> like_;  // by class, by group: the class of such devices; -1: none
  std::vector<double> shares_;
  Duals duals_;
  double value_ = 0;
  double bound_;
  int rounds_ = 0;
  int64_t bound_boxes_ = 0;
};

}  // namespace tessera::scheduler
