// The snippets of docs/guides/proxy-by-language.md for Go: main environment|authority|fan-out WORKER...
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

func plain(worker string) (*grpc.ClientConn, error) {
	return grpc.NewClient(worker, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func byAuthority(worker string) (*grpc.ClientConn, error) {
	// [snippet]
	return grpc.NewClient("unix:/run/sluice/proxy.sock", grpc.WithAuthority(worker),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	// [snippet]
}

func ofOneFanOut(ctx context.Context, workers []string) context.Context {
	// [snippet]
	return metadata.AppendToOutgoingContext(ctx, "sluice-block", rand.Text(), "sluice-weight", strconv.Itoa(len(workers)))
	// [snippet]
}

func check(ctx context.Context, way, worker string) error {
	connect := byAuthority
	if way == "environment" {
		connect = plain
	}
	connection, err := connect(worker)
	if err != nil {
		return err
	}
	defer connection.Close()
	answer, err := grpc_health_v1.NewHealthClient(connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err == nil && answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		err = fmt.Errorf("the worker says %v", answer)
	}
	return err
}

func main() {
	way, workers := os.Args[1], os.Args[2:]
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if way == "fan-out" {
		ctx = ofOneFanOut(ctx, workers)
	}
	failures := make(chan error)
	for _, worker := range workers {
		go func() { failures <- check(ctx, way, worker) }()
	}
	for range workers {
		if err := <-failures; err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(len(workers), "served")
}
