#include "scheduler/planner/report/plan_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/link_bundles.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kCell = 58, kCellHeight = 50, kGap = 4, kPad = 10, kHead = 22;
constexpr double kGutter = 110, kMachineGap = 26, kMargin = 24, kTitle = 82, kLine = 18;
constexpr double kSiteGap = 56;       // lines between sites are seen in it
constexpr double kLetterWidth = 7.2;  // on average, of the widest text
constexpr double kLegendWidth = 1040;
// A screen: what is wider is shown smaller, until nobody can read it.
constexpr double kMaxWidth = 1880, kRowGap = 24;
constexpr int kPerRow = 8, kPerColumn = 4;

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

// All light enough for black text, and at least 34 apart from each other in CIELAB (as Euclid
// measures), 26 from white and from the grey of idle devices.
constexpr const char* kColours[] = {"#78b4e1", "#ff8778", "#b4f096", "#c3a5ff",
                                    "#ffd296", "#4bf0ff", "#ff78b4", "#a5a52d",
                                    "#78b496", "#c39696", "#d2872d", "#00ffd2"};

const char* LoadColour(double load) {
  return load < 0.5 ? "#3a8f5c" : load < 0.8 ? "#d08a1d" : "#c0392b";
}

// "P", "D", or nothing for both.
std::string RoleMark(v1::ReplicaRole role) {
  if (role == v1::REPLICA_ROLE_PREFILL) return " P";
  return role == v1::REPLICA_ROLE_DECODE ? " D" : "";
}

struct Point {
  double x = 0, y = 0;
};

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  double middle() const { return y + height / 2; }
  double right() const { return x + width; }
  // Whether one stands above the other, in whatever row of sites.
  bool Overlaps(const Box& other) const { return x < other.right() && other.x < right(); }
  // Itself is as well.
  bool IsNear(const Box& other) const {
    constexpr double kNear = 160;
    return x < other.right() + kNear && other.x < right() + kNear &&
           y < other.y + other.height + kNear && other.y < y + height + kNear;
  }
};

struct Use {
  int replica = 0, stage = 0;
  const v1::PlannedWorker* worker = nullptr;
};

class Picture {
 public:
  Picture(const v1::DeploymentPlan& plan, const ClusterGraph& graph) : plan_(plan), graph_(graph) {
    for (int r = 0; r < plan.replicas_size(); ++r) {
      for (int j = 0; j < plan.replicas(r).stages_size(); ++j) {
        for (const v1::PlannedWorker& worker : plan.replicas(r).stages(j).workers())
          uses_[worker.device()] = {r, j, &worker};
      }
    }
    devices_.resize(graph.machines().size());
    for (const DevicePool& pool : graph.pools()) {
      for (int i = 0; i < pool.count; ++i)
        devices_[static_cast<size_t>(pool.machine)].push_back(
            {graph.DeviceName(pool, i), pool.spec->kind});
    }
    for (std::vector<Device>& devices : devices_) BringTogether(&devices);
    bundles_ = LinkBundles(plan, graph);
  }

  std::string Draw() {
    Place();
    Colour();
    width_ = std::max(width_, kLegendWidth);
    DrawSites();
    // Links pass behind machines, whose text stays readable; their numbers do not.
    for (size_t b = 0; b < bundles_.size(); ++b) DrawBundle(bundles_[b], b + 1);
    for (size_t m = 0; m < boxes_.size(); ++m) DrawMachine(m);
    body_ += numbers_;
    double y = bottom_ + 30;
    DrawReplicas(&y);
    DrawLinkTable(&y);
    DrawEstimates(&y);
    const v1::Prediction& p = plan_.prediction();
    const std::string counted_on = CountedOnText(plan_);
    const std::string beside =
        !counted_on.empty() ? counted_on
                            : absl::StrFormat("%.0f output tokens/s", p.output_tokens_per_second());
    std::string title = Escaped(absl::StrFormat(
        "%s: up to %.2f requests/s, %s", plan_.model().name(), p.requests_per_second(), beside));
    return absl::StrFormat(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
               "height=\"%.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
               "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
               "markerWidth=\"8\" markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" "
               "orient=\"auto-start-reverse\"><path d=\"M0,0 L8,4 L0,8 z\" "
               "fill=\"#444\"/></marker></defs>\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
               width_, y + kMargin, width_, y + kMargin) +
           Text(kMargin, 32, title, "font-size=\"20\" font-weight=\"bold\"") +
           Text(kMargin, 52, Escaped(LatencyText(plan_)), "font-size=\"13\"") +
           Text(kMargin, 70,
                "Frames are stages: replica (P: prefills, D: decodes), stage s1, TP: devices that "
                "share its layers; bars: memory in use; grey devices are idle.",
                "fill=\"#555\"") +
           body_ + "</svg>\n";
  }

 private:
  struct Device {
    std::string name, kind;
  };

  // Moves the devices of a stage to wherever one of them is first.
  void BringTogether(std::vector<Device>* devices) const {
    std::vector<Device> sorted;
    std::vector<bool> taken(devices->size(), false);
    for (size_t d = 0; d < devices->size(); ++d) {
      if (taken[d]) continue;
      for (size_t other = d; other < devices->size(); ++other) {
        if (other > d && !AreSiblings((*devices)[d], (*devices)[other])) continue;
        taken[other] = true;
        sorted.push_back((*devices)[other]);
      }
    }
    *devices = std::move(sorted);
  }

  bool AreSiblings(const Device& a, const Device& b) const {
    const auto one = uses_.find(a.name), other = uses_.find(b.name);
    return one != uses_.end() && other != uses_.end() &&
           one->second.replica == other->second.replica && one->second.stage == other->second.stage;
  }

  static std::string Text(double x, double y, const std::string& text, const std::string& style) {
    return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, style, text);
  }

  double WidthOf(size_t machine) const {
    const int columns = std::clamp(static_cast<int>(devices_[machine].size()), 3, kPerRow);
    return 2 * kPad + columns * (kCell + kGap) - kGap;
  }

  double HeightOf(size_t machine) const {
    const int rows = (static_cast<int>(devices_[machine].size()) + kPerRow - 1) / kPerRow;
    return kHead + kPad + rows * (kCellHeight + kGap);
  }

  // Sites from left to right, in as many rows as a screen makes of them.
  void Place() {
    boxes_.resize(graph_.machines().size());
    std::vector<std::string> sites;
    std::map<std::string, std::vector<size_t>> machines;
    for (size_t m = 0; m < boxes_.size(); ++m) {
      const std::string& site = graph_.machines()[m].site;
      if (!machines.contains(site)) sites.push_back(site);
      machines[site].push_back(m);
    }
    double x = kMargin, top = kTitle;
    bottom_ = kTitle;
    for (const std::string& site : sites) {
      Box around = PlaceSite(machines[site], x, top);
      if (x > kMargin && around.right() > kMaxWidth - kMargin) {
        top = bottom_ + kRowGap;
        around = PlaceSite(machines[site], kMargin, top);
      }
      sites_[site] = around;
      x = around.right() + kSiteGap;
      width_ = std::max(width_, around.right() + kPad + kMargin);
      bottom_ = std::max(bottom_, around.y + around.height);
    }
  }

  // Machines of a site in columns, no more of them than a screen has room for.
  Box PlaceSite(const std::vector<size_t>& machines, double left, double top) {
    double widest = 0;
    for (const size_t m : machines) widest = std::max(widest, WidthOf(m));
    const auto columns = static_cast<size_t>(
        std::max(1.0, std::floor((kMaxWidth - 2 * kMargin - kPad) / (widest + kGutter))));
    const size_t per_column =
        std::max<size_t>(kPerColumn, (machines.size() + columns - 1) / columns);
    Box around = {left, top, 0, 0};
    double x = left + kPad, y = 0, width = 0;
    for (size_t i = 0; i < machines.size(); ++i) {
      if (i % per_column == 0) {
        x += i == 0 ? 0 : width + kGutter;
        y = top + kHead + kPad;
        width = 0;
      }
      Box& box = boxes_[machines[i]];
      box = {x, y, WidthOf(machines[i]), HeightOf(machines[i])};
      width = std::max(width, box.width);
      y += box.height + kMachineGap;
      around.height = std::max(around.height, y - kMachineGap + kPad - top);
    }
    around.width = x + width + kGutter - kPad - left;
    return around;
  }

  // Replicas of neighbouring machines differ in colour, and all do while there are enough.
  void Colour() {
    const auto replicas = static_cast<size_t>(plan_.replicas_size());
    std::vector<std::set<int>> in_machine(boxes_.size()), near(replicas);
    for (size_t m = 0; m < boxes_.size(); ++m) {
      for (const Device& device : devices_[m]) {
        const auto used = uses_.find(device.name);
        if (used != uses_.end()) in_machine[m].insert(used->second.replica);
      }
    }
    for (size_t a = 0; a < boxes_.size(); ++a) {
      for (size_t b = 0; b < boxes_.size(); ++b) {
        if (!boxes_[a].IsNear(boxes_[b])) continue;
        for (const int replica : in_machine[a])
          near[static_cast<size_t>(replica)].insert(in_machine[b].begin(), in_machine[b].end());
      }
    }
    std::array<int, std::size(kColours)> times = {};
    for (size_t r = 0; r < replicas; ++r) {
      std::array<int, std::size(kColours)> cost = times;
      if (r > 0) near[r].insert(static_cast<int>(r) - 1);  // in the list below
      for (const int other : near[r]) {
        if (other < static_cast<int>(r)) cost[colours_[static_cast<size_t>(other)]] += 1 << 20;
      }
      colours_.push_back(
          static_cast<size_t>(std::min_element(cost.begin(), cost.end()) - cost.begin()));
      ++times[colours_.back()];
    }
  }

  const char* ColourOf(int replica) const {
    return kColours[colours_[static_cast<size_t>(replica)]];
  }

  void DrawSites() {
    for (const auto& [site, box] : sites_) {
      absl::StrAppendFormat(&body_,
                            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"8\" "
                            "fill=\"#f4f6f8\" stroke=\"#cfd6dd\"/>\n",
                            box.x, box.y, box.width, box.height);
      const std::string name = site.empty() ? "one site" : "site " + Escaped(site);
      body_ += Text(box.x + kPad, box.y + 18, name, "font-size=\"14\" fill=\"#445\"");
    }
  }

  void DrawMachine(size_t m) {
    const Box& box = boxes_[m];
    absl::StrAppendFormat(&body_,
                          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"5\" "
                          "fill=\"white\" stroke=\"#667\"/>\n",
                          box.x, box.y, box.width, box.height);
    body_ +=
        Text(box.x + kPad, box.y + 16, Escaped(graph_.machines()[m].name), "font-weight=\"bold\"");
    const std::vector<Device>& devices = devices_[m];
    for (size_t d = 0; d < devices.size();) {
      const size_t row_end = std::min(devices.size(), (d / kPerRow + 1) * kPerRow);
      size_t end = d + 1;
      while (end < row_end && AreSiblings(devices[d], devices[end])) ++end;
      const double x = box.x + kPad + static_cast<double>(d % kPerRow) * (kCell + kGap);
      const double y = box.y + kHead + static_cast<double>(d / kPerRow) * (kCellHeight + kGap);
      DrawRun({devices.begin() + static_cast<long>(d), devices.begin() + static_cast<long>(end)}, x,
              y);
      d = end;
    }
  }

  static std::string Title(const Device& device) {
    return StrCat("<title>", Escaped(device.name), ", ", Escaped(device.kind), "</title></rect>\n");
  }

  // Devices of one stage beside each other, in one frame; or one that is idle.
  void DrawRun(const std::vector<Device>& run, double x, double y) {
    const auto used = uses_.find(run.front().name);
    const bool idle = used == uses_.end();
    const double width = static_cast<double>(run.size()) * (kCell + kGap) - kGap;
    for (size_t i = 0; i < run.size(); ++i) {
      const bool last = i + 1 == run.size();
      absl::StrAppendFormat(&body_,
                            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\" "
                            "fill=\"%s\">%s",
                            x + static_cast<double>(i) * (kCell + kGap), y,
                            last ? kCell : kCell + kGap, kCellHeight,
                            idle ? "#dddddd" : ColourOf(used->second.replica), Title(run[i]));
    }
    absl::StrAppendFormat(&body_,
                          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\" "
                          "fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"/>\n",
                          x, y, width, kCellHeight, run.size() > 1 ? "#334" : "#889",
                          run.size() > 1 ? "2" : "1");
    const double middle = x + width / 2;
    const std::string centred = "text-anchor=\"middle\" ";
    const bool squeezed = run.size() == 1 && run.front().kind.size() > 9;
    body_ += Text(middle, y + 40, Escaped(run.front().kind),
                  centred + "font-size=\"10\" fill=\"#333\"" +
                      (squeezed ? " textLength=\"52\" lengthAdjust=\"spacingAndGlyphs\"" : ""));
    if (idle) {
      body_ += Text(middle, y + 20, "idle", centred + "fill=\"#777\"");
      return;
    }
    const Use& use = used->second;
    const v1::Replica& replica = plan_.replicas(use.replica);
    const v1::Range& layers = use.worker->share().layers();
    const int width_of_stage = replica.stages(use.stage).workers_size();
    body_ += Text(middle, y + 14,
                  Escaped(StrCat(replica.name(), RoleMark(replica.role()), " s", use.stage,
                                 run.size() > 1 ? StrCat(", TP ", width_of_stage) : "")),
                  centred + "font-size=\"11\" font-weight=\"bold\"");
    body_ += Text(middle, y + 28, StrCat(layers.begin(), "-", layers.end() - 1),
                  centred + "font-size=\"11\"");
    for (size_t i = 0; i < run.size(); ++i)
      DrawMemory(*uses_.at(run[i].name).worker, x + static_cast<double>(i) * (kCell + kGap), y);
  }

  void DrawMemory(const v1::PlannedWorker& worker, double x, double y) {
    if (worker.available_bytes() <= 0) return;
    const double used = static_cast<double>(worker.weight_bytes()) +
                        static_cast<double>(worker.kv_bytes()) +
                        static_cast<double>(worker.activation_bytes());
    const double full = std::min(1.0, used / static_cast<double>(worker.available_bytes()));
    absl::StrAppendFormat(
        &body_,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"4\" fill=\"white\"/>"
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"4\" fill=\"#456\"/>\n",
        x + 3, y + kCellHeight - 6, kCell - 6, x + 3, y + kCellHeight - 6, (kCell - 6) * full);
  }

  // The box of a machine, or of a site; null: there is none.
  const Box* BoxOf(const std::string& name, bool site) const {
    if (site) return &sites_.at(name);
    for (size_t m = 0; m < graph_.machines().size(); ++m) {
      if (graph_.machines()[m].name == name) return &boxes_[m];
    }
    return nullptr;
  }

  // One line, with a tip at every end that something is sent to.
  void DrawBundle(const LinkBundle& bundle, size_t number) {
    if (bundle.to.empty()) return;  // an uplink: in the table alone
    const Box &a = *BoxOf(bundle.from, bundle.sites), &b = *BoxOf(bundle.to, bundle.sites);
    const double load = bundle.load();
    // Where each of several machines sends to many, the lines do not begin at one point.
    const double shift = 5.0 * (static_cast<double>(number % 5) - 2);
    const double y1 = a.middle() + shift, y2 = b.middle() + shift;
    double x1 = 0, x2 = 0, bend1 = 0, bend2 = 0;
    if (a.Overlaps(b)) {
      x1 = a.right();
      x2 = b.right();
      const int arc = arcs_[a.x]++;
      const double out = bundle.sites ? 20 + 6.0 * (arc % 4) : 26 + 14.0 * (arc % 6);
      bend1 = bend2 = std::max(x1, x2) + out;
    } else {
      const bool rightwards = a.x < b.x;
      x1 = rightwards ? a.right() : a.x;
      x2 = rightwards ? b.x : b.right();
      bend1 = bend2 = (x1 + x2) / 2;
    }
    const Point label = LabelOn({Point{x1, y1}, Point{bend1, y1}, Point{bend2, y2}, Point{x2, y2}});
    absl::StrAppendFormat(&body_,
                          "<path d=\"M%.1f,%.1f C%.1f,%.1f %.1f,%.1f %.1f,%.1f\" fill=\"none\" "
                          "stroke=\"%s\" stroke-width=\"%.1f\" stroke-opacity=\"0.85\"%s%s/>\n",
                          x1, y1, bend1, y1, bend2, y2, x2, y2, LoadColour(load),
                          1.2 + 5 * std::min(1.0, load),
                          bundle.back.empty() ? "" : " marker-start=\"url(#tip)\"",
                          bundle.there.empty() ? "" : " marker-end=\"url(#tip)\"");
    absl::StrAppendFormat(
        &numbers_, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"8\" fill=\"white\" stroke=\"%s\"/>\n",
        label.x, label.y, LoadColour(load));
    numbers_ +=
        Text(label.x, label.y + 3.5, StrCat(number), "text-anchor=\"middle\" font-size=\"10\"");
  }

  // Where on the curve a link's number stands: near the middle, not on a machine nor on another
  // number.
  Point LabelOn(const std::array<Point, 4>& curve) {
    const auto at = [&](double t) {
      const double s = 1 - t;
      const double w[] = {s * s * s, 3 * s * s * t, 3 * s * t * t, t * t * t};
      Point point;
      for (size_t i = 0; i < 4; ++i) {
        point.x += w[i] * curve[i].x;
        point.y += w[i] * curve[i].y;
      }
      return point;
    };
    Point label = at(0.5);
    for (double off = 0; off < 0.49; off += 0.01) {
      const Point before = at(0.5 - off), after = at(0.5 + off);
      if (IsFree(before) || IsFree(after)) {
        label = IsFree(before) ? before : after;
        break;
      }
    }
    labels_.push_back(label);
    return label;
  }

  bool IsFree(const Point& point) const {
    constexpr double kRadius = 9;
    for (const Point& other : labels_) {
      if (std::hypot(other.x - point.x, other.y - point.y) < 2 * kRadius) return false;
    }
    return std::none_of(boxes_.begin(), boxes_.end(), [&](const Box& box) {
      return point.x > box.x - kRadius && point.x < box.right() + kRadius &&
             point.y > box.y - kRadius && point.y < box.y + box.height + kRadius;
    });
  }

  void DrawReplicas(double* y) {
    body_ += Text(kMargin, *y, "Replicas", "font-size=\"15\" font-weight=\"bold\"");
    std::map<std::string, double> shares;
    for (const v1::RoutingShare& share : plan_.routing()) {
      shares[share.prefill_replica()] += share.share();
      if (share.decode_replica() != share.prefill_replica())
        shares[share.decode_replica()] += share.share();
    }
    for (int r = 0; r < plan_.replicas_size(); ++r) {
      const v1::Replica& replica = plan_.replicas(r);
      *y += kLine;
      absl::StrAppendFormat(&body_,
                            "<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"12\" fill=\"%s\" "
                            "stroke=\"#889\"/>\n",
                            kMargin, *y - 10, ColourOf(r));
      std::string line = absl::StrFormat(
          "%s: %s, %d stage%s, up to %.3f requests/s, %.1f %% of the requests", replica.name(),
          RoleText(replica.role()), replica.stages_size(), replica.stages_size() == 1 ? "" : "s",
          replica.prediction().requests_per_second(), 100 * shares[replica.name()]);
      const v1::Prediction& p = replica.prediction();
      if (p.time_to_first_token_seconds() > 0)
        absl::StrAppendFormat(&line, ", TTFT %.2g s", p.time_to_first_token_seconds());
      if (p.time_per_output_token_seconds() > 0)
        absl::StrAppendFormat(&line, ", TPOT %.0f ms", 1e3 * p.time_per_output_token_seconds());
      body_ += Text(kMargin + 22, *y, Escaped(line), "");
    }
  }

  void DrawLinkTable(double* y) {
    if (bundles_.empty()) return;
    *y += 2 * kLine;
    body_ += Text(kMargin, *y, "Links, at all that the plan can serve",
                  "font-size=\"15\" font-weight=\"bold\"");
    for (size_t b = 0; b < bundles_.size(); ++b) {
      *y += kLine;
      body_ += Text(kMargin, *y, StrCat(b + 1), "");
      body_ += Text(kMargin + 30, *y, Escaped(BundleText(bundles_[b])),
                    absl::StrFormat("fill=\"%s\"", LoadColour(bundles_[b].load())));
    }
  }

  // What the figures rest on without a measurement, in as many lines as it takes.
  void DrawEstimates(double* y) {
    std::string rest = EstimatesText(plan_);
    if (rest.empty()) return;
    *y += kLine;
    const auto most = static_cast<size_t>((width_ - 2 * kMargin) / kLetterWidth);
    while (!rest.empty()) {
      size_t end = rest.size() <= most ? rest.size() : rest.rfind(' ', most);
      if (end == std::string::npos) end = most;  // one word
      *y += kLine;
      body_ += Text(kMargin, *y, Escaped(rest.substr(0, end)), "fill=\"#555\"");
      rest.erase(0, end + 1);
    }
  }

  const v1::DeploymentPlan& plan_;
  const ClusterGraph& graph_;
  std::map<std::string, Use> uses_;
  std::vector<std::vector<Device>> devices_;  // by machine
  std::vector<Box> boxes_;                    // by machine
  std::vector<LinkBundle> bundles_;
  std::map<std::string, Box> sites_;
  std::map<double, int> arcs_;   // drawn so far, by the column's left
  std::vector<size_t> colours_;  // by replica
  std::vector<Point> labels_;
  double width_ = 0, bottom_ = 0;
  std::string body_, numbers_;  // numbers of links, in front of all
};

}  // namespace

std::string PlanPicture(const v1::DeploymentPlan& plan, const ClusterGraph& graph) {
  return Picture(plan, graph).Draw();
}

}  // namespace tessera::scheduler
