// The snippets of docs/guides/proxy-by-language.md for Go: main environment|authority|tls|fan-out|package WORKER...
package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"sluice"
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

func byTLS(string) (*grpc.ClientConn, error) {
	// [snippet]
	identity, err := tls.LoadX509KeyPair("client.pem", "client.key")
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile("ca.pem")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	config := &tls.Config{Certificates: []tls.Certificate{identity}, RootCAs: roots}
	return grpc.NewClient("127.0.0.1:7443", grpc.WithTransportCredentials(credentials.NewTLS(config)))
	// [snippet]
}

func toWorker(ctx context.Context, worker string) context.Context {
	// [snippet]
	return metadata.AppendToOutgoingContext(ctx, "x-worker", worker)
	// [snippet]
}

func ofOneFanOut(ctx context.Context, workers []string) context.Context {
	// [snippet]
	return metadata.AppendToOutgoingContext(ctx, "sluice-block", rand.Text(), "sluice-weight", strconv.Itoa(len(workers)))
	// [snippet]
}

func byPackage(ctx context.Context, workers []string) error {
	var asks []sluice.Ask[*grpc_health_v1.HealthCheckResponse]
	for _, worker := range workers {
		// [snippet]
		conn, err := sluice.Dial(sluice.DefaultProxy, worker)
		// [snippet]
		if err != nil {
			return err
		}
		defer conn.Close()
		asks = append(asks, sluice.Ask[*grpc_health_v1.HealthCheckResponse]{
			Call: func(ctx context.Context) (*grpc_health_v1.HealthCheckResponse, error) {
				return grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
			},
		})
	}
	// [snippet]
	result, err := sluice.FanOut(ctx, asks, sluice.Options{Quorum: len(asks)})
	// [snippet]
	if err != nil {
		return err
	}
	return result.Err()
}

func check(ctx context.Context, way, worker string) error {
	connect := byAuthority
	switch way {
	case "environment":
		connect = plain
	case "tls":
		connect = byTLS
		ctx = toWorker(ctx, worker)
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
	if way == "package" {
		if err := byPackage(ctx, workers); err != nil {
			log.Fatal(err)
		}
		fmt.Println(len(workers), "served")
		return
	}
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
