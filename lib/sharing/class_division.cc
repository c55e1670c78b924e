#include "lib/sharing/class_division.h"

#include <algorithm>

#include "lib/sharing/share_division.h"

namespace sluice {
namespace {

// All claims on one class.
struct DividedClass {
  double weight = 0;   // from the clients
  double clients = 0;  // weights of the clients with traffic in it
  double boosted_clients = 0;
  int64_t demand_bytes = 0;
  int64_t bytes = 0;      // its part
  double fair_bytes = 0;  // its part if all classes with traffic had enough
  std::vector<ShareClaim> claims;
};

size_t ClassCount(const std::vector<ClientClaim>& clients) {
  size_t count = 0;
  for (const ClientClaim& client : clients) {
    for (const ClassClaim& claim : client.classes) count = std::max(count, claim.traffic_class + 1);
  }
  return count;
}

void AddWeights(const ClientClaim& client, std::vector<DividedClass>& classes) {
  double wanted = 0;
  for (const ClassClaim& claim : client.classes) {
    if (classes[claim.traffic_class].demand_bytes > 0) wanted += claim.weight;
  }
  for (const ClassClaim& claim : client.classes) {
    DividedClass& divided = classes[claim.traffic_class];
    if (divided.demand_bytes > 0) divided.weight += client.weight * claim.weight / wanted;
  }
}

std::vector<DividedClass> ClassesOf(int64_t bytes, const std::vector<ClientClaim>& clients) {
  std::vector<DividedClass> classes(ClassCount(clients));
  for (const ClientClaim& client : clients) {
    for (const ClassClaim& claim : client.classes) {
      if (claim.demand_bytes == 0) continue;
      DividedClass& divided = classes[claim.traffic_class];
      const int64_t demand_bytes = std::min(claim.demand_bytes, bytes);
      divided.clients += client.weight;
      divided.boosted_clients += client.weight * client.boost;
      divided.demand_bytes += demand_bytes;
      divided.claims.push_back({.weight = client.weight * client.boost, .cap_bytes = demand_bytes});
    }
  }
  for (const ClientClaim& client : clients) AddWeights(client, classes);
  double weights = 0;
  for (const DividedClass& divided : classes) weights += divided.weight;
  for (DividedClass& divided : classes) {
    if (weights > 0) divided.fair_bytes = static_cast<double>(bytes) * divided.weight / weights;
  }
  return classes;
}

// A class counts for more if its clients do.
void Divide(int64_t bytes, std::vector<DividedClass>& classes) {
  std::vector<ShareClaim> claims;
  for (const DividedClass& divided : classes) {
    if (divided.demand_bytes == 0) continue;
    const double weight = divided.weight * divided.boosted_clients / divided.clients;
    claims.push_back({.weight = weight, .cap_bytes = std::min(divided.demand_bytes, bytes)});
  }
  const std::vector<int64_t> parts = DivideByWeight(bytes, claims);
  auto part = parts.begin();
  for (DividedClass& divided : classes) {
    if (divided.demand_bytes > 0) divided.bytes = *part++;
  }
}

double SumOfWeights(const ClientClaim& client) {
  double sum = 0;
  for (const ClassClaim& claim : client.classes) sum += claim.weight;
  return sum;
}

}  // namespace

std::vector<std::vector<ClassPart>> DivideByClass(int64_t bytes, const std::vector<ClientClaim>& clients) {
  std::vector<DividedClass> classes = ClassesOf(bytes, clients);
  Divide(bytes, classes);
  std::vector<std::vector<int64_t>> parts;
  double weights = 0;
  for (const DividedClass& divided : classes) parts.push_back(DivideByWeight(divided.bytes, divided.claims));
  for (const ClientClaim& client : clients) weights += client.weight;
  std::vector<size_t> next(classes.size());
  std::vector<std::vector<ClassPart>> shares;
  for (const ClientClaim& client : clients) {
    std::vector<ClassPart>& of = shares.emplace_back();
    for (const ClassClaim& claim : client.classes) {
      const DividedClass& divided = classes[claim.traffic_class];
      if (claim.demand_bytes == 0) {
        const double part = client.weight / weights * claim.weight / SumOfWeights(client);
        of.push_back({.bytes = 0, .fair_bytes = static_cast<int64_t>(static_cast<double>(bytes) * part)});
        continue;
      }
      const int64_t part_bytes = parts[claim.traffic_class][next[claim.traffic_class]++];
      const double part = static_cast<double>(part_bytes) / static_cast<double>(std::max<int64_t>(divided.bytes, 1));
      const double fair_part = std::max(part, client.weight / divided.clients);
      of.push_back({.bytes = part_bytes, .fair_bytes = static_cast<int64_t>(divided.fair_bytes * fair_part)});
    }
  }
  return shares;
}

}  // namespace sluice
