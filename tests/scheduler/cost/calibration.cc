#include "tests/scheduler/cost/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

std::string LinkKey(const LayerObservation& o) { return StrCat(o.devices, "x", o.device); }

double Predict(const ModelShape& model, const DeviceSpec& device, const LinkSpec& link,
               double context, const LayerObservation& o) {
  const RankShare share = FullestShare(model, o.devices);
  StepWork work;
  if (o.decode) {
    work = DecodeWork(o.size, context);
  } else {
    // A step of many tokens is made of prompts as long as the contexts that the decode rows have.
    const double length = std::min(o.size, context);
    work.prefill_tokens = o.size;
    work.prefill_attention_pairs = o.size * length / 2;
  }
  return LayerSeconds(model, device, share, {{o.devices, link, false}}, work, 0);
}

double RelativeError(double predicted, double measured) {
  return std::abs(predicted - measured) / measured;
}

// Minimises `cost` over `x` in place by trying each coordinate up and down, halving the steps when
// nothing helps.
double PatternSearch(const std::function<double(std::span<const double>)>& cost,
                     std::vector<double>& x, double step, double smallest_step) {
  double best = cost(x);
  while (step > smallest_step) {
    bool improved = false;
    for (size_t i = 0; i < x.size(); ++i) {
      for (const double direction : {step, -step}) {
        x[i] += direction;
        const double value = cost(x);
        if (value < best) {
          best = value;
          improved = true;
          break;
        }
        x[i] -= direction;
      }
    }
    if (!improved) step /= 2;
  }
  return best;
}

// The parameters of one card kind and the links between such cards, as logarithms.
struct KindFit {
  const CalibrationInput* input;
  std::string kind;
  std::vector<const LayerObservation*> observations;
  std::vector<std::string> link_keys;

  std::vector<double> Start(double efficiency) const {
    std::vector<double> x = {std::log(efficiency), std::log(efficiency), std::log(30e-6)};
    for (size_t i = 0; i < link_keys.size(); ++i) {
      x.push_back(std::log(20e-6));
      x.push_back(std::log(8e9));
    }
    return x;
  }

  DeviceSpec Device(std::span<const double> x) const {
    DeviceSpec device = input->devices.at(kind);
    device.compute_efficiency = std::min(1.0, std::exp(x[0]));
    device.memory_efficiency = std::min(1.0, std::exp(x[1]));
    device.layer_overhead_seconds = std::exp(x[2]);
    device.estimated = false;
    return device;
  }

  LinkSpec Link(std::span<const double> x, size_t i) const {
    LinkSpec link;
    link.latency_seconds = std::exp(x[3 + 2 * i]);
    link.bytes_per_second = std::exp(x[4 + 2 * i]);
    return link;
  }

  double Error(std::span<const double> x, double context) const {
    const DeviceSpec device = Device(x);
    double sum = 0;
    for (const LayerObservation* o : observations) {
      LinkSpec link;
      if (o->devices > 1) {
        const auto key = std::find(link_keys.begin(), link_keys.end(), LinkKey(*o));
        link = Link(x, static_cast<size_t>(key - link_keys.begin()));
      }
      sum +=
          RelativeError(Predict(input->models.at(o->model), device, link, context, *o), o->seconds);
    }
    return sum;
  }

  // Sum of relative errors at the best parameters for this context.
  double Best(double context, std::vector<double>& best_x) const {
    double best = -1;
    for (const double efficiency : {0.8, 0.6, 0.4}) {
      std::vector<double> x = Start(efficiency);
      const double error = PatternSearch(
          [&](std::span<const double> at) { return Error(at, context); }, x, 0.4, 1e-3);
      if (best >= 0 && error >= best) continue;
      best = error;
      best_x = x;
    }
    return best;
  }
};

std::vector<KindFit> GroupByKind(std::span<const LayerObservation> observations,
                                 const CalibrationInput& input) {
  std::map<std::string, KindFit> kinds;
  for (const LayerObservation& o : observations) {
    KindFit& fit = kinds[o.device];
    fit.input = &input;
    fit.kind = o.device;
    fit.observations.push_back(&o);
    if (o.devices == 1) continue;
    if (std::find(fit.link_keys.begin(), fit.link_keys.end(), LinkKey(o)) == fit.link_keys.end()) {
      fit.link_keys.push_back(LinkKey(o));
    }
  }
  std::vector<KindFit> list;
  for (auto& [kind, fit] : kinds) list.push_back(std::move(fit));
  return list;
}

}  // namespace

absl::StatusOr<std::vector<LayerObservation>> ParseLayerTimes(std::string_view text,
                                                              std::string_view file) {
  std::vector<LayerObservation> observations;
  int line_number = 0;
  bool header_seen = false;
  for (const absl::string_view line : absl::StrSplit(AbslView(text), '\n')) {
    ++line_number;
    if (line.empty() || line[0] == '#') continue;
    if (!header_seen) {
      header_seen = true;
      if (line != "model,device,devices,phase,size,milliseconds_per_layer") {
        return absl::InvalidArgumentError(StrCat(file, ":", line_number, ": unknown header"));
      }
      continue;
    }
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    LayerObservation o;
    double milliseconds = 0;
    const bool numbers = cells.size() == 6 && absl::SimpleAtoi(cells[2], &o.devices) &&
                         absl::SimpleAtod(cells[4], &o.size) &&
                         absl::SimpleAtod(cells[5], &milliseconds) && o.devices > 0 && o.size > 0 &&
                         milliseconds > 0;
    if (!numbers || (cells[3] != "prefill" && cells[3] != "decode")) {
      return absl::InvalidArgumentError(
          StrCat(file, ":", line_number,
                 ": expected model,device,devices,prefill or decode,size,milliseconds above 0"));
    }
    o.model = cells[0];
    o.device = cells[1];
    o.decode = cells[3] == "decode";
    o.seconds = milliseconds * 1e-3;
    observations.push_back(std::move(o));
  }
  return observations;
}

absl::StatusOr<Calibration> Fit(std::span<const LayerObservation> observations,
                                const CalibrationInput& input) {
  if (observations.empty()) return absl::InvalidArgumentError("no layer times to fit");
  for (const LayerObservation& o : observations) {
    if (!input.models.contains(o.model))
      return absl::NotFoundError(StrCat("layer times name model ", o.model));
    if (!input.devices.contains(o.device))
      return absl::NotFoundError(StrCat("layer times name device ", o.device));
  }
  const std::vector<KindFit> kinds = GroupByKind(observations, input);
  const auto total = [&](std::span<const double> log_context) {
    double sum = 0;
    std::vector<double> x;
    for (const KindFit& kind : kinds) sum += kind.Best(std::exp(log_context[0]), x);
    return sum;
  };
  std::vector<double> log_context = {std::log(700.0)};
  PatternSearch(total, log_context, 0.4, 0.01);

  Calibration calibration;
  calibration.decode_context_tokens = std::exp(log_context[0]);
  for (const KindFit& kind : kinds) {
    std::vector<double> x;
    kind.Best(calibration.decode_context_tokens, x);
    calibration.devices[kind.kind] = kind.Device(x);
    for (size_t i = 0; i < kind.link_keys.size(); ++i)
      calibration.links[kind.link_keys[i]] = kind.Link(x, i);
  }
  return calibration;
}

double PredictSeconds(const Calibration& calibration, const CalibrationInput& input,
                      const LayerObservation& observation) {
  const auto link = calibration.links.find(LinkKey(observation));
  return Predict(input.models.at(observation.model), calibration.devices.at(observation.device),
                 link == calibration.links.end() ? LinkSpec() : link->second,
                 calibration.decode_context_tokens, observation);
}

double MeanAbsoluteError(const Calibration& calibration, const CalibrationInput& input,
                         std::span<const LayerObservation> observations) {
  double sum = 0;
  for (const LayerObservation& o : observations) {
    sum += RelativeError(PredictSeconds(calibration, input, o), o.seconds);
  }
  return observations.empty() ? 0 : sum / static_cast<double>(observations.size());
}

}  // namespace tessera::scheduler
