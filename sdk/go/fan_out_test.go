package sluice

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// These tests call the workers directly, and read the metadata that a proxy would receive.

func setUp(t *testing.T) (*workers, health.HealthClient) {
	w := serve(t, "127.0.0.1:0")
	return w, client(t, w.addresses[0], "worker:1")
}

func ask(t *testing.T, all []Ask[int], options Options) *Result[int] {
	t.Helper()
	result, err := FanOut(WithClass(deadline(t), "queries"), all, options)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func equal[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestResponsesAreInTheOrderOfTheCalls(t *testing.T) {
	w, worker := setUp(t)
	result := ask(t, asks(worker, "1", "2", "3"), Options{})
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	equal(t, "responses", result.Responses, []int{1, 2, 3})
	equal(t, "errors", result.Errors, []error{nil, nil, nil})
	if result.Coverage() != 1 {
		t.Error(result.Coverage())
	}
	seen := w.seen(t, 3)
	equal(t, "weights", values(seen, "sluice-weight"), []string{"3", "3", "3"})
	equal(t, "classes", values(seen, "sluice-class"), []string{"queries", "queries", "queries"})
	blocks := values(seen, blockKey)
	if blocks[0] == "" || blocks[1] != blocks[0] || blocks[2] != blocks[0] {
		t.Error(blocks)
	}
	ask(t, asks(worker, "1"), Options{})
	if again := values(w.seen(t, 1), blockKey)[0]; again == blocks[0] {
		t.Error("two fan-outs have the same id")
	}
}

func TestErrorsAreKept(t *testing.T) {
	_, worker := setUp(t)
	result := ask(t, asks(worker, "1", "internal", "3"), Options{})
	equal(t, "responses", result.Responses, []int{1, 0, 3})
	if status.Code(result.Errors[1]) != codes.Internal {
		t.Error(result.Errors[1])
	}
	if math.Abs(result.Coverage()-2./3) > 1e-9 {
		t.Error(result.Coverage())
	}
	const text = "sluice: 2 of 3 calls responded, 3 must respond; call 1: rpc error: code = Internal desc = as requested"
	if err := result.Err(); err == nil || err.Error() != text || status.Code(err) != codes.Internal {
		t.Error(err)
	}
}

func TestAQuorumEndsTheFanOutAndCancelsTheRest(t *testing.T) {
	w, worker := setUp(t)
	first := func(ctx context.Context) (int, error) {
		w.seen(t, 1) // the call that waits
		return call(worker, "1")(ctx)
	}
	all := append(asks(worker, "wait"), Ask[int]{Call: first})
	result := ask(t, all, Options{Quorum: 1})
	equal(t, "errors", result.Errors, []error{ErrNotNeeded, nil})
	if err := result.Err(); err != nil {
		t.Error(err)
	}
	if err := <-w.ended; err != context.Canceled {
		t.Error(err)
	}
}

func TestAQuorumThatCannotBeReachedEndsTheFanOut(t *testing.T) {
	_, worker := setUp(t)
	result := ask(t, asks(worker, "wait", "internal", "internal"), Options{Quorum: 2})
	if result.Err() == nil || result.Answered != 0 || result.Errors[0] != ErrNotNeeded {
		t.Errorf("%+v", result)
	}
}

func TestAWorkerThatIsUnavailableIsReplaced(t *testing.T) {
	w, worker := setUp(t)
	all := asks(worker, "unavailable", "2")
	all[0].Replicas = []Call[int]{call(worker, "7")}
	result := ask(t, all, Options{})
	equal(t, "responses", result.Responses, []int{7, 2})
	if result.Retries != 1 || result.Hedges != 0 {
		t.Errorf("%+v", result)
	}
	blocks := values(w.seen(t, 3), blockKey)
	slices.Sort(blocks)
	if blocks[0] != "" || blocks[1] == "" || blocks[1] != blocks[2] {
		t.Errorf("blocks %q: a replica's call must be a block of its own", blocks)
	}
}

func TestALateCallIsHedgedWithinTheRatio(t *testing.T) {
	w, worker := setUp(t)
	all := asks(worker, "wait", "wait")
	for i := range all {
		all[i].Replicas = []Call[int]{call(worker, "wait")}
	}
	go func() {
		w.seen(t, 3)
		w.release()
	}()
	result := ask(t, all, Options{HedgeAfter: time.Nanosecond})
	if result.Answered != 2 || result.Hedges != 1 {
		t.Errorf("%+v: of 2 calls, one may be repeated", result)
	}
	none := ask(t, asks(worker, "unavailable"), Options{ReplicaRatio: -1})
	if none.Retries != 0 || none.Err() == nil {
		t.Errorf("%+v", none)
	}
}

func TestAFailureIsReplacedAtOnceWhileAHedgeHangs(t *testing.T) {
	w, worker := setUp(t)
	fails := func(context.Context) (int, error) {
		w.seen(t, 1) // the hedge
		return 0, status.Error(codes.Unavailable, "as requested")
	}
	hedged := Ask[int]{Call: fails, Replicas: []Call[int]{call(worker, "wait"), call(worker, "7")}}
	result := ask(t, []Ask[int]{hedged}, Options{HedgeAfter: time.Nanosecond})
	equal(t, "responses", result.Responses, []int{7})
	if result.Hedges != 1 || result.Retries != 1 {
		t.Errorf("%+v", result)
	}
}

func TestADeadlineIsAnErrorOfTheCall(t *testing.T) {
	_, worker := setUp(t)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	result, err := FanOut(ctx, asks(worker, "wait"), Options{})
	if err != nil || status.Code(result.Errors[0]) != codes.DeadlineExceeded {
		t.Error(result, err)
	}
}

func TestOptionsOutOfBounds(t *testing.T) {
	_, worker := setUp(t)
	for _, options := range []Options{{Quorum: 2}, {Quorum: -1}, {ReplicaRatio: 1.5}} {
		if _, err := FanOut(deadline(t), asks(worker, "1"), options); err == nil {
			t.Errorf("%+v", options)
		}
	}
	if result := ask(t, nil, Options{}); result.Err() != nil || result.Coverage() != 1 {
		t.Errorf("%+v", result)
	}
	defer func() {
		if recover() == nil {
			t.Error("a fan-out of 0 calls")
		}
	}()
	WithFanOut(context.Background(), 0)
}

func TestMarkedCallsAreOneFanOut(t *testing.T) {
	w, worker := setUp(t)
	ctx := deadline(t)
	marked := WithResponseBytes(WithFanOut(ctx, 3), 17)
	for _, each := range []context.Context{ctx, marked, metadata.AppendToOutgoingContext(marked, blockKey, "own")} {
		if _, err := call(worker, "1")(each); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := worker.Watch(marked, &health.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := w.seen(t, 4)
	blocks := values(seen, blockKey)
	equal(t, "blocks", blocks, []string{"", blocks[1], "own", blocks[1]})
	equal(t, "weights", values(seen, "sluice-weight"), []string{"", "3", "", "3"})
	equal(t, "sizes", values(seen, "sluice-response-bytes"), []string{"", "17", "17", "17"})
	if blocks[1] == "" {
		t.Error(blocks)
	}
}
