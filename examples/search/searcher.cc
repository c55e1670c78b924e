#include "searcher.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "top_hits.h"

namespace sluice::examples::search {
namespace {

const Method<v1::ListShardsRequest, v1::ListShardsResponse> kListShards{
    "/sluice.examples.search.v1.SearchShards/ListShards"};
const Method<v1::QueryRequest, v1::QueryResponse> kQuery{"/sluice.examples.search.v1.SearchShards/Query"};

// Uses every worker that responds, and ignores failures.
absl::StatusOr<ShardMap> FindShards(const std::shared_ptr<Link>& link, const Searcher::Options& options) {
  const auto fan_out = FanOut::Create(link, {.workers = options.workers, .tls = options.tls});
  if (!fan_out.ok()) return fan_out.status();
  const auto [result, responses] =
      (*fan_out)->Collect(kListShards, [](size_t) { return v1::ListShardsRequest(); },
                          {.timeout = options.fan_out.timeout, .fail_limit = static_cast<int>(options.workers.size())});
  if (!result.status.ok()) return result.status;
  std::map<std::string, v1::ListShardsResponse> workers;
  for (size_t i = 0; i < options.workers.size(); ++i) {
    if (!responses[i].empty()) workers[options.workers[i]] = responses[i].front();
  }
  if (workers.empty()) {
    return absl::UnavailableError(
        absl::StrCat("no worker answered; ", options.workers[0], ": ", result.failures.front().status.ToString()));
  }
  return MapShards(workers, options.part);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Searcher>> Searcher::Create(std::shared_ptr<Link> link, Options options) {
  absl::StatusOr<ShardMap> map = FindShards(link, options);
  if (!map.ok()) return map.status();
  const auto missing = static_cast<int>(map->missing.size());
  if (const int fail_limit = options.fan_out.fail_limit.value_or(0); missing > fail_limit) {
    return absl::UnavailableError(absl::StrCat("no worker serves shard ", absl::StrJoin(map->missing, ", "), "; ",
                                               missing, " missing of ", map->shard_count,
                                               " shards are more than --fail_limit ", fail_limit));
  }
  const std::optional<TlsOptions> tls = options.tls;
  std::unique_ptr<Searcher> searcher(new Searcher(std::move(options), *std::move(map)));
  auto fan_out = FanOut::Create(std::move(link), {.workers = searcher->map_.addresses, .tls = tls});
  if (!fan_out.ok()) return fan_out.status();
  searcher->fan_out_ = *std::move(fan_out);
  searcher->fan_out_->Connect();  // each query shows the workers that cannot be reached
  return searcher;
}

absl::StatusOr<v1::SearchResult> Searcher::Search(const std::string& query) const {
  v1::QueryRequest request;
  request.set_query(query);
  request.set_top_k(options_.top_k);
  request.set_snippet_bytes(options_.snippet_bytes);
  return Search(request, options_.fan_out.timeout);
}

absl::StatusOr<v1::SearchResult> Searcher::Search(const v1::QueryRequest& query, absl::Duration timeout) const {
  FanOutOptions options = options_.fan_out;
  options.timeout = timeout;
  options.fail_limit = fail_limit() - static_cast<int>(map_.missing.size());
  // An index may have lost its second copies; queries go on without hedges.
  const auto has_none = [](const auto& replicas) { return replicas.empty(); };
  if (std::all_of(map_.replicas.begin(), map_.replicas.end(), has_none)) options.hedge_ratio = 0;
  TopHits top(query.top_k());
  uint32_t answered = 0;
  v1::SearchResult result;
  const auto started = std::chrono::steady_clock::now();
  const FanOutResult ended = fan_out_->Call(
      kQuery,
      [&](size_t worker) -> std::optional<Ask<v1::QueryRequest>> {
        if (worker >= map_.shards.size()) return std::nullopt;  // replicas receive no request of their own
        v1::QueryRequest request = query;
        request.set_shard(map_.shards[worker]);
        return Ask<v1::QueryRequest>(std::move(request), /*bytes=*/std::nullopt, map_.replicas[worker]);
      },
      [&](size_t worker, v1::QueryResponse answer) {
        result.set_matches(result.matches() + answer.matches());
        answered += answer.leaf_shards() > 0 ? answer.leaf_shards_answered() : 1;
        for (const std::string& missing : answer.missing()) {
          result.add_missing(absl::StrCat(fan_out_->address(worker), ": ", missing));
        }
        top.Add(std::move(answer));
        return absl::OkStatus();
      },
      options);
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - started;
  if (!ended.status.ok()) return ended.status;
  if (ended.answered == 0) {
    return ended.failures.empty() ? absl::UnavailableError("no shard answered") : ended.failures.front().status;
  }
  result.set_query(query.query());
  for (v1::Hit& hit : top.Take()) *result.add_hits() = std::move(hit);
  result.set_shard_count(map_.LeafShards());
  result.set_shards_answered(answered);
  result.add_milliseconds(elapsed.count());
  result.set_response_bytes(static_cast<uint64_t>(ended.response_bytes));
  result.set_hedges(static_cast<uint32_t>(ended.hedges));
  result.set_hedges_won(static_cast<uint32_t>(ended.hedges_won));
  AddMissing(ended, result);
  if (absl::Status covered = CheckCoverage(result); !covered.ok()) return covered;
  return result;
}

// Aggregators return the available hits, and this function decides whether they are sufficient.
absl::Status Searcher::CheckCoverage(const v1::SearchResult& result) const {
  const auto missing = static_cast<int>(result.shard_count()) - static_cast<int>(result.shards_answered());
  if (missing <= fail_limit()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(missing, " missing of ", result.shard_count(),
                                             " shards are more than --fail_limit ", fail_limit(), "; ",
                                             absl::StrJoin(result.missing(), "; ")));
}

void Searcher::AddMissing(const FanOutResult& ended, v1::SearchResult& result) const {
  for (const uint32_t shard : map_.missing) result.add_missing(absl::StrCat("shard ", shard, ": no worker serves it"));
  for (const WorkerFailure& failure : ended.failures) {
    result.add_missing(absl::StrCat(fan_out_->address(failure.worker), ": ", failure.status.ToString()));
  }
}

}  // namespace sluice::examples::search
