#pragma once

#include <cstdint>
#include <optional>

#include "sluice/link_profile.h"

#include "absl/status/status.h"
#include "absl/time/time.h"

// The model of TCP collapse without a schedule, from Chen et al., "Comprehensive Understanding of TCP Incast Problem"
// (INFOCOM 2015). Equation numbers refer to that paper; docs/internals/model.md lists the differences from it. Pure
// functions. The model is qualitative, as its authors state: it predicts whether a service has the problem, not its
// exact size.
namespace sluice {

// p (18, 22): the probability that a packet is lost when all workers send a window of `window_packets` at once into the
// buffer and the pipe, B + C·D packets. 0 if all of them fit. `window_packets` is above 0.
double LossProbability(const LinkProfile& profile, int64_t workers, double window_packets);

// P_FLT (9, 13): the probability that one worker loses its whole window in one round, and so waits for a timeout. Each
// packet is lost with probability `loss`. Windows are normally distributed with the mean w > 0 and the standard
// deviation σ_w >= 0, both in packets. As in (9), windows below 0 count as no window and the rest is not scaled up.
// loss = 1 therefore gives the normal distribution's share above 0.
double FullLossProbability(double loss, double window_packets, double window_deviation);

// The upper bound of P_FLT (14, 16), at most 1. It is at most twice P_FLT if ln p >= −w/σ_w² (15). Otherwise it is
// useless, because it grows as the loss falls.
double FullLossBound(double loss, double window_packets, double window_deviation);

// The probability that one worker loses a part of its window in one round and still waits for a timeout: fewer than
// `duplicate_acks` packets arrive after the first lost packet, and the worker sends nothing new. The paper calls it
// lack of ACKs (LAT) and has no equation for it; this equation is our own. `window_packets` is at least 1.
double LackOfAcksProbability(double loss, int64_t window_packets, int64_t duplicate_acks = 3);

// P_TO (17): the probability of at least one event in `trials` independent trials, each with `probability`. R trials
// give the probability that one worker times out in a transmission of R rounds. N·R trials give it for any of N
// workers.
double ProbabilityOfAny(double probability, double trials);

// The model's assumptions about TCP.
struct CollapseOptions {
  absl::Duration rto_min = absl::Milliseconds(200);  // τ_TO, 0 to 1 h
  double window_packets = 0;    // w, 0 to 2^32, at most the SRU; 0: the worst of IW, 2 IW, 4 IW … up to wnd_max
  double window_deviation = 0;  // σ_w, packets, 0 to 2^32
  int64_t rounds = 0;           // R, 0 to 2^32; 0: the rounds that the SRU needs at w packets per round

  // Returns InvalidArgument that names the field, its value and its bound.
  absl::Status Validate() const;
};

struct CollapseEstimate {
  double window_packets = 0;             // w
  int64_t rounds = 0;                    // R
  double loss_probability = 0;           // p (18)
  double full_loss_probability = 0;      // P_FLT (13): one worker, one round
  double full_loss_bound = 0;            // (14, 16)
  double lack_of_acks_probability = 0;   // one worker, one round, all windows w; not in the values below
  double timeout_probability = 0;        // P_TO (17): one worker, all rounds
  double block_timeout_probability = 0;  // any of the N workers; the paper uses P_TO instead
  double goodput_bps = 0;                // (5) with the probability of the block; payload bits per second
  double printed_goodput_bps = 0;        // (5) with P_TO, as the paper prints it
};

// Computes the whole model for N workers that respond with `sru_bytes` each, for a profile and options that have passed
// Validate(). Sizes beyond kMaxResponseBytes and kMaxWorkers count as these.
CollapseEstimate PredictCollapse(const LinkProfile& profile, int64_t sru_bytes, int64_t workers,
                                 const CollapseOptions& options = {});

// Goodput, in payload bits per second, of N workers that all respond at once. If all responses fit the buffer together,
// no packet is lost, and the model of the closed loop holds. Otherwise returns nothing: the model of collapse is then
// too high by a factor of more than 3 at 37 of 152 points of a packet simulation, and too low on real hosts
// (docs/internals/model.md).
std::optional<double> PredictUnscheduledGoodputBps(const LinkProfile& profile, int64_t sru_bytes, int64_t workers);

}  // namespace sluice
