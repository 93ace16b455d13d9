#include "scheduler/planner/report/plan_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_format.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/plan_text.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

constexpr double kCell = 58, kCellHeight = 50, kGap = 4, kPad = 10, kHead = 22;
constexpr double kGutter = 110, kMachineGap = 26, kMargin = 24, kTitle = 64, kLine = 18;
constexpr double kLetterWidth = 7.2;  // on average, of the widest text
constexpr double kLegendWidth = 1040;
// A screen: what is wider is shown smaller, until nobody can read it.
constexpr double kMostWidth = 1880, kRowGap = 24;
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
  }

  std::string Draw() {
    Place();
    Colour();
    width_ = std::max(width_, kLegendWidth);
    DrawSites();
    // Links pass behind machines, whose text stays readable; their numbers do not.
    for (int l = 0; l < plan_.links_size(); ++l) DrawLink(plan_.links(l), l + 1);
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
               "orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"#444\"/></marker></defs>\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
               width_, y + kMargin, width_, y + kMargin) +
           Text(kMargin, 32, title, "font-size=\"20\" font-weight=\"bold\"") +
           Text(kMargin, 52,
                "Each square is a device: replica (P: prefills, D: decodes) and stage (s1), its "
                "layers, its kind; the bar is memory in use. Grey devices are idle.",
                "fill=\"#555\"") +
           body_ + "</svg>\n";
  }

 private:
  struct Device {
    std::string name, kind;
  };

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
      if (x > kMargin && around.right() > kMostWidth - kMargin) {
        top = bottom_ + kRowGap;
        around = PlaceSite(machines[site], kMargin, top);
      }
      sites_[site] = around;
      x = around.right() + kPad;
      width_ = std::max(width_, x + kMargin);
      bottom_ = std::max(bottom_, around.y + around.height);
    }
  }

  // Machines of a site in columns, no more of them than a screen has room for.
  Box PlaceSite(const std::vector<size_t>& machines, double left, double top) {
    double widest = 0;
    for (const size_t m : machines) widest = std::max(widest, WidthOf(m));
    const auto columns = static_cast<size_t>(
        std::max(1.0, std::floor((kMostWidth - 2 * kMargin - kPad) / (widest + kGutter))));
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
    for (size_t d = 0; d < devices_[m].size(); ++d) {
      const double x = box.x + kPad + static_cast<double>(d % kPerRow) * (kCell + kGap);
      const double y = box.y + kHead + static_cast<double>(d / kPerRow) * (kCellHeight + kGap);
      DrawDevice(devices_[m][d], x, y);
    }
  }

  void DrawDevice(const Device& device, double x, double y) {
    const auto used = uses_.find(device.name);
    const bool idle = used == uses_.end();
    absl::StrAppendFormat(&body_,
                          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\" "
                          "fill=\"%s\" stroke=\"#889\"><title>%s, %s</title></rect>\n",
                          x, y, kCell, kCellHeight,
                          idle ? "#dddddd" : ColourOf(used->second.replica), Escaped(device.name),
                          Escaped(device.kind));
    const double middle = x + kCell / 2;
    const std::string centred = "text-anchor=\"middle\" ";
    const bool squeezed = device.kind.size() > 9;
    body_ += Text(middle, y + 40, Escaped(device.kind),
                  centred + "font-size=\"10\" fill=\"#333\"" +
                      (squeezed ? " textLength=\"52\" lengthAdjust=\"spacingAndGlyphs\"" : ""));
    if (idle) {
      body_ += Text(middle, y + 20, "idle", centred + "fill=\"#777\"");
      return;
    }
    const Use& use = used->second;
    const v1::Replica& replica = plan_.replicas(use.replica);
    const v1::Range& layers = use.worker->share().layers();
    body_ += Text(middle, y + 14,
                  Escaped(StrCat(replica.name(), RoleMark(replica.role()), " s", use.stage)),
                  centred + "font-size=\"11\" font-weight=\"bold\"");
    body_ += Text(middle, y + 28, StrCat(layers.begin(), "-", layers.end() - 1),
                  centred + "font-size=\"11\"");
    if (use.worker->available_bytes() <= 0) return;
    const double full = std::min(1.0, (static_cast<double>(use.worker->weight_bytes()) +
                                       static_cast<double>(use.worker->kv_bytes()) +
                                       static_cast<double>(use.worker->activation_bytes())) /
                                          static_cast<double>(use.worker->available_bytes()));
    absl::StrAppendFormat(
        &body_,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"4\" fill=\"white\"/>"
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"4\" fill=\"#456\"/>\n",
        x + 3, y + kCellHeight - 6, kCell - 6, x + 3, y + kCellHeight - 6, (kCell - 6) * full);
  }

  int MachineNamed(const std::string& name) const {
    for (size_t m = 0; m < graph_.machines().size(); ++m) {
      if (graph_.machines()[m].name == name) return static_cast<int>(m);
    }
    return -1;
  }

  void DrawLink(const v1::LinkLoad& link, int number) {
    const int from = MachineNamed(link.from()), to = MachineNamed(link.to());
    if (from < 0 || to < 0) return;  // an uplink: in the table alone
    const Box &a = boxes_[static_cast<size_t>(from)], &b = boxes_[static_cast<size_t>(to)];
    const double load = link.bytes_per_second() / link.capacity_bytes_per_second();
    // There and back do not lie on each other.
    const double shift = from < to ? -7 : 7;
    const double y1 = a.middle() + shift, y2 = b.middle() + shift;
    double x1 = 0, x2 = 0, bend1 = 0, bend2 = 0;
    if (a.Overlaps(b)) {
      x1 = a.right();
      x2 = b.right();
      const double out = 26 + 14.0 * (arcs_[a.x]++ % 6);
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
                          "stroke=\"%s\" stroke-width=\"%.1f\" stroke-opacity=\"0.85\" "
                          "marker-end=\"url(#tip)\"/>\n",
                          x1, y1, bend1, y1, bend2, y2, x2, y2, LoadColour(load),
                          1.2 + 5 * std::min(1.0, load));
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
      body_ += Text(kMargin + 22, *y, Escaped(line), "");
    }
  }

  void DrawLinkTable(double* y) {
    if (plan_.links().empty()) return;
    *y += 2 * kLine;
    body_ += Text(kMargin, *y, "Links, at all that the plan can serve",
                  "font-size=\"15\" font-weight=\"bold\"");
    for (int l = 0; l < plan_.links_size(); ++l) {
      const v1::LinkLoad& link = plan_.links(l);
      const double load = link.bytes_per_second() / link.capacity_bytes_per_second();
      *y += kLine;
      const std::string what = link.to().empty() ? StrCat("uplink of ", link.from())
                                                 : StrCat(link.from(), " to ", link.to());
      body_ += Text(kMargin, *y, StrCat(l + 1), "");
      body_ += Text(kMargin + 30, *y,
                    Escaped(absl::StrFormat("%s: %.3f of %.3g Gbit/s, %.1f %%", what,
                                            link.bytes_per_second() * 8e-9,
                                            link.capacity_bytes_per_second() * 8e-9, 100 * load)),
                    absl::StrFormat("fill=\"%s\"", LoadColour(load)));
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
