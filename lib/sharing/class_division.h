#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace sluice {

// One class of traffic of a client that wants a part of a divided quantity.
struct ClassClaim {
  size_t traffic_class = 0;  // an index, the same for all clients
  double weight = 1;         // above 0; among the classes of the client
  int64_t demand_bytes = 0;  // 0: nothing waits

  // Used by ClassDivision alone: the amounts that its sums contain.
  double class_weight = 0;
  int64_t capped_bytes = 0;
  bool met = false;
};

struct ClientClaim {
  double weight = 1;                // above 0
  std::vector<ClassClaim> classes;  // at most one claim on each class

  // Used by ClassDivision alone.
  size_t position = 0;
  double class_weights = 0;  // of all classes
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
// of the clients count. Both steps are weighted max-min fair: a part above the demand goes to others.
//
// A changed claim takes time in proportion to its classes, and a division time in proportion to all classes. A division
// looks at all claims only if a class began or ended, or if parts have moved by more than an eighth. Otherwise parts
// are off by no more than that. There is one for each LinkDivider. Not thread-safe.
class ClassDivision {
 public:
  // The division refers to the claim until Remove. A claim must not change while it is in the division.
  void Add(ClientClaim& claim);
  void Remove(ClientClaim& claim);

  // Returns whether the parts of all clients may have changed. Otherwise only those of new claims have.
  bool Divide(int64_t bytes);
  size_t busy_classes() const { return busy_classes_; }  // with traffic, at the last division
  // `claim` is one of `client`, which was there at the last division.
  ClassPart PartOf(const ClientClaim& client, const ClassClaim& claim) const;

 private:
  // The results of a division on which parts depend.
  struct Scale {
    double level = std::numeric_limits<double>::infinity();  // bytes for each unit of weight of a client
    double fair_by_weight = 0;                               // fair bytes for each unit of weight of a client
    double fair_by_byte = 0;                                 // fair bytes for each byte of the class's part
  };
  // All claims on one class.
  struct Class {
    bool busy = false;          // some client had traffic in it at the last division
    size_t clients = 0;         // with traffic in it
    double weight = 0;          // from all clients
    double client_weights = 0;  // of the clients with traffic in it
    int64_t demand_bytes = 0;   // of all clients
    int64_t met_bytes = 0;      // of the clients whose demand is at most their weight times the level
    double unmet_weights = 0;   // of the other clients
    Scale scale;
    Scale all_scale;  // when the division last looked at all claims
  };

  void Count(ClientClaim& claim);
  void Uncount(const ClientClaim& claim);
  void CountAll();
  bool Meet();
  void Solve();
  bool Moved() const;

  int64_t bytes_ = 0;
  double weights_ = 0;  // of all clients
  size_t busy_classes_ = 0;
  std::vector<Class> classes_;
  std::vector<ClientClaim*> claims_;
};

}  // namespace sluice
