package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Call makes one call of a fan-out, with the context that it receives.
type Call[T any] func(ctx context.Context) (T, error)

// Ask is one request of a fan-out.
type Ask[T any] struct {
	Call Call[T]
	// Replicas make the same request at other workers.
	Replicas []Call[T]
}

// Options of a fan-out. The zero value waits for every call.
type Options struct {
	// Quorum ends the fan-out after this number of responses, or once it cannot reach it, and cancels the rest. 0: wait
	// for all calls.
	Quorum int
	// HedgeAfter is the time after which calls without a response are repeated at a replica. The time that a response
	// waits for the link counts. 0: never.
	HedgeAfter time.Duration
	// ReplicaRatio bounds the retries, and the hedges, as a share of the calls, 0 to 1; at least one of each is allowed.
	// 0: a fifth. Below 0: none.
	ReplicaRatio float64
}

// ErrNotNeeded is the error of a call that was cancelled, because the fan-out ended without its response.
var ErrNotNeeded = errors.New("sluice: the fan-out ended without this call")

// Result says how a fan-out ended. Both slices are in the order of the asks.
type Result[T any] struct {
	Responses []T
	Errors    []error // nil for a call that responded
	Answered  int     // calls that responded
	Quorum    int     // calls that had to respond
	Hedges    int     // calls to replicas after HedgeAfter
	Retries   int     // calls to replicas of workers that were unavailable
}

// Coverage returns the share of the calls that responded, 0 to 1.
func (r *Result[T]) Coverage() float64 {
	if len(r.Responses) == 0 {
		return 1
	}
	return float64(r.Answered) / float64(len(r.Responses))
}

// Err returns nil if enough calls have responded, and otherwise an error that wraps the error of the last call that
// failed.
func (r *Result[T]) Err() error {
	if r.Answered >= r.Quorum {
		return nil
	}
	err := fmt.Errorf("sluice: %d of %d calls responded, %d must respond", r.Answered, len(r.Responses), r.Quorum)
	for i := len(r.Errors) - 1; i >= 0; i-- {
		if r.Errors[i] != nil && !errors.Is(r.Errors[i], ErrNotNeeded) {
			return fmt.Errorf("%w; call %d: %w", err, i, r.Errors[i])
		}
	}
	return err
}

// FanOut makes all calls at once, as one fan-out, and returns when it has ended. Give ctx a deadline. Errors of workers
// are in the result. A worker that is unavailable is replaced by a replica at once. The error is not nil if an option is
// out of its bounds; no call is made then.
func FanOut[T any](ctx context.Context, asks []Ask[T], options Options) (*Result[T], error) {
	if options.Quorum < 0 || options.Quorum > len(asks) {
		return nil, fmt.Errorf("sluice: Quorum %d is not a number from 0 to %d, the number of calls", options.Quorum, len(asks))
	}
	if options.ReplicaRatio > 1 {
		return nil, fmt.Errorf("sluice: ReplicaRatio %g is above 1", options.ReplicaRatio)
	}
	if len(asks) > MaxCalls {
		return nil, fmt.Errorf("sluice: %d calls; a fan-out has at most %d", len(asks), MaxCalls)
	}
	run := newFanOut(asks, options)
	if len(asks) == 0 {
		return &run.Result, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run.first(WithFanOut(ctx, len(asks)))
	ctx = alone(ctx) // of replicas: the first calls use up the number of calls of the fan-out
	var late <-chan time.Time
	if options.HedgeAfter > 0 {
		timer := time.NewTimer(options.HedgeAfter)
		defer timer.Stop()
		late = timer.C
	}
	for !run.ended() {
		select {
		case end := <-run.ends:
			run.take(ctx, end)
		case <-late:
			run.hedge(ctx)
		}
	}
	return &run.Result, nil
}

type end[T any] struct {
	index    int
	response T
	err      error
}

// fanOut is the state of one fan-out. Only the goroutine of FanOut uses it; calls send to ends, which has space for all.
type fanOut[T any] struct {
	Result[T]
	asks       []Ask[T]
	ends       chan end[T]
	failsEarly bool
	running    []int
	tried      []int // replicas
	most       int   // of retries, and of hedges
	open       int   // calls that have neither responded nor failed
}

func newFanOut[T any](asks []Ask[T], options Options) *fanOut[T] {
	count := len(asks)
	replicas := 0
	switch {
	case options.ReplicaRatio == 0:
		replicas = max(1, count/5)
	case options.ReplicaRatio > 0:
		replicas = max(1, int(options.ReplicaRatio*float64(count)))
	}
	run := &fanOut[T]{
		Result:     Result[T]{Responses: make([]T, count), Errors: make([]error, count), Quorum: options.Quorum},
		asks:       asks,
		ends:       make(chan end[T], count+2*replicas),
		failsEarly: options.Quorum > 0,
		running:    make([]int, count),
		tried:      make([]int, count),
		most:       replicas,
		open:       count,
	}
	if !run.failsEarly {
		run.Quorum = count
	}
	for i := range run.Errors {
		run.Errors[i] = ErrNotNeeded
	}
	return run
}

func (f *fanOut[T]) first(ctx context.Context) {
	for i, ask := range f.asks {
		f.start(ctx, i, ask.Call)
	}
}

func (f *fanOut[T]) start(ctx context.Context, index int, call Call[T]) {
	f.running[index]++
	go func() {
		response, err := call(ctx)
		f.ends <- end[T]{index, response, err}
	}()
}

func (f *fanOut[T]) take(ctx context.Context, end end[T]) {
	i := end.index
	f.running[i]--
	if f.Errors[i] == nil {
		return // another attempt has responded
	}
	if end.err == nil {
		f.Responses[i], f.Errors[i] = end.response, nil
		f.Answered++
		f.open--
		return
	}
	if status.Code(end.err) == codes.Unavailable && f.replica(ctx, i, &f.Retries) {
		return // even if another attempt is open, because it may hang
	}
	if f.running[i] > 0 {
		return // the other attempt decides
	}
	f.Errors[i] = end.err
	f.open--
}

func (f *fanOut[T]) hedge(ctx context.Context) {
	for i := range f.asks {
		if f.running[i] > 0 && f.Errors[i] != nil {
			f.replica(ctx, i, &f.Hedges)
		}
	}
}

// replica starts the next replica, if one is left, and counts it in made: the retries, or the hedges.
func (f *fanOut[T]) replica(ctx context.Context, index int, made *int) bool {
	replicas := f.asks[index].Replicas
	if f.tried[index] == len(replicas) || *made == f.most {
		return false
	}
	*made++
	f.start(ctx, index, replicas[f.tried[index]])
	f.tried[index]++
	return true
}

func (f *fanOut[T]) ended() bool {
	if f.open == 0 || f.Answered >= f.Quorum {
		return true
	}
	return f.failsEarly && f.Answered+f.open < f.Quorum
}
