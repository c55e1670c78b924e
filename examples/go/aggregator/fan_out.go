package main

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"sluice/examples/answers"
)

// FanOut calls all workers at once. There is one in a program, and any goroutine may use it.
type FanOut struct {
	workers []answers.AnswersClient
}

// Connect creates a channel to each worker. If the environment has HTTPS_PROXY, gRPC itself uses that proxy. With via,
// channels connect to that address instead, and name their worker in :authority.
func Connect(workers []string, via string, security credentials.TransportCredentials) (*FanOut, error) {
	fanOut := &FanOut{}
	for _, worker := range workers {
		target := worker
		options := []grpc.DialOption{grpc.WithTransportCredentials(security)}
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

// Ask returns the responses in the order of the workers, or the first error. After an error it cancels the other calls.
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
				cancel(err) // only the first error counts
			}
			responses[i] = response
		}()
	}
	calls.Wait()
	return responses, context.Cause(ctx)
}
