#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

// One class of traffic of a client that wants a part of a divided quantity.
struct ClassClaim {
  size_t traffic_class = 0;  // an index, the same for all clients
  double weight = 1;         // above 0; among the classes of the client
  int64_t demand_bytes = 0;  // 0: nothing waits
};

struct ClientClaim {
  double weight = 1;                // above 0
  double boost = 1;                 // above 0; the client counts for more than its weight
  std::vector<ClassClaim> classes;  // at most one claim on each class
};

// The part of one ClassClaim.
struct ClassPart {
  int64_t bytes = 0;  // at most the demand
  // By weight, whatever its demand and that of other classes. If others of its class want less, it is their part, too.
  int64_t fair_bytes = 0;

  int64_t EntitledBytes() const { return std::max<int64_t>({bytes, fair_bytes, 1}); }
};

// Divides bytes among classes of traffic, and the part of each class among the clients that have traffic in it.
//
// The weight of a class comes from all clients: the weight of a client goes to its classes, in proportion to their
// weights, as far as any client has traffic in them. So classes share by their weights, also if they belong to
// different clients, and clients without a common class share by the weights of the clients. Within a class the weights
// of the clients count. Both steps are weighted max-min fair: a part above the demand goes to others. Returns the parts
// in the order of the claims.
std::vector<std::vector<ClassPart>> DivideByClass(int64_t bytes, const std::vector<ClientClaim>& clients);

}  // namespace sluice
