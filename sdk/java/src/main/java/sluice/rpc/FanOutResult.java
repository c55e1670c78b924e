package sluice.rpc;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * How a fan-out ended. Both lists are in the order of the asks, and have null for the other outcome. A call that was
 * cancelled has neither a response nor an error.
 *
 * @param quorum calls that had to respond
 * @param answered calls that responded
 * @param hedges calls to replicas of late workers
 * @param retries calls to replicas of workers that were unavailable
 */
public record FanOutResult<T>(
    List<T> responses, List<Throwable> errors, int quorum, int answered, int hedges, int retries) {

  /** Copies the lists, because calls may still end. */
  public FanOutResult {
    responses = Collections.unmodifiableList(new ArrayList<>(responses)); // List.copyOf permits no null
    errors = Collections.unmodifiableList(new ArrayList<>(errors));
  }

  /** Returns the share of the calls that responded, 0 to 1. */
  public double coverage() {
    return responses.isEmpty() ? 1 : (double) answered / responses.size();
  }

  /** Returns whether enough calls have responded. */
  public boolean ok() {
    return answered >= quorum;
  }

  /** Returns itself. Throws {@link FanOutException} if fewer calls than the quorum have responded. */
  public FanOutResult<T> check() {
    if (!ok()) {
      throw new FanOutException(this);
    }
    return this;
  }
}
