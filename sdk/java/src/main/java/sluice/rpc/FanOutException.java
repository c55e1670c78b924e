package sluice.rpc;

/** Fewer calls than the quorum have responded. The cause is the error of the last call that failed. */
public final class FanOutException extends RuntimeException {
  private static final long serialVersionUID = 1;

  FanOutException(FanOutResult<?> result) {
    super(message(result));
    int last = last(result);
    if (last >= 0) {
      initCause(result.errors().get(last));
    }
  }

  private static int last(FanOutResult<?> result) {
    int index = result.errors().size() - 1;
    while (index >= 0 && result.errors().get(index) == null) {
      index--;
    }
    return index;
  }

  private static String message(FanOutResult<?> result) {
    String text =
        result.answered() + " of " + result.responses().size() + " calls responded, " + result.quorum() + " must respond";
    int last = last(result);
    return last < 0 ? text : text + "; call " + last + ": " + result.errors().get(last).getMessage();
  }
}
