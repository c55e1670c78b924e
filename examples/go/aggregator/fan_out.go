package main

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"sluice/examples/answers"
)

// FanOut asks all workers at once. There is one, and it may be used from any goroutine.
type FanOut struct {
	workers []answers.AnswersClient
}

// Connect makes a channel to each worker. Where the environment has HTTPS_PROXY, gRPC itself goes through that proxy. With
// via, channels lead to that address instead, and name their worker as the :authority.
func Connect(workers []string, via string) (*FanOut, error) {
	fanOut := &FanOut{}
	for _, worker := range workers {
		target := worker
		options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		if via != "" {
			target = via
			options = append(options, grpc.WithAuthority(worker))
		}
		connection, err := grpc.NewClient(target, options...)
		if err != nil {
			return nil, err
		}
		fanOut.workers = append(fanOut.workers, answers.NewAnswersClient(connection))
	}
	return fanOut, nil
}

// Ask returns the answers in the order of the workers, or the first error that came; the other calls are cancelled then.
func (f *FanOut) Ask(ctx context.Context, request *answers.AnswerRequest) ([]*answers.AnswerResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	responses := make([]*answers.AnswerResponse, len(f.workers))
	var calls sync.WaitGroup
	calls.Add(len(f.workers))
	for i, worker := range f.workers {
		go func() {
			defer calls.Done()
			response, err := worker.Answer(ctx, request)
			if err != nil {
				cancel(err) // only the first one counts
			}
			responses[i] = response
		}()
	}
	calls.Wait()
	return responses, context.Cause(ctx)
}
