package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Secrets reads and writes Secrets of the pod's namespace with the token of its service account.
type Secrets struct {
	base   string // URL of the Secrets
	token  string
	client http.Client
}

// Secret is the part of a Secret that this program uses.
type Secret struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Data map[string][]byte `json:"data"`
}

func openSecrets(server, account string) (*Secrets, error) {
	token, err := os.ReadFile(filepath.Join(account, "token"))
	if err != nil {
		return nil, err
	}
	namespace, err := os.ReadFile(filepath.Join(account, "namespace"))
	if err != nil {
		return nil, err
	}
	authorities, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s/ca.crt has no certificate", account)
	}
	return &Secrets{
		base:  fmt.Sprintf("%s/api/v1/namespaces/%s/secrets/", server, strings.TrimSpace(string(namespace))),
		token: strings.TrimSpace(string(token)),
		client: http.Client{
			Timeout:   10 * time.Second,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
		},
	}, nil
}

func serverOfCluster() (string, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return "", errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is not a pod; use --server")
	}
	return "https://" + net.JoinHostPort(host, port), nil
}

func (s *Secrets) get(name string) (*Secret, error) { return s.call(http.MethodGet, name, nil) }

// write changes the given values. It fails if the Secret has changed since it was read, as by another run at once.
func (s *Secrets) write(name string, read *Secret, data map[string][]byte) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]string{"resourceVersion": read.Metadata.ResourceVersion},
		"data":     data,
	})
	if err != nil {
		return err
	}
	_, err = s.call(http.MethodPatch, name, body)
	return err
}

func (s *Secrets) call(method, name string, body []byte) (*Secret, error) {
	request, err := http.NewRequest(method, s.base+name, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 4<<20))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		var status struct{ Message string }
		_ = json.Unmarshal(text, &status) // a response that is not JSON has no message
		return nil, fmt.Errorf("%s %s: %s: %s", method, name, response.Status, status.Message)
	}
	secret := &Secret{}
	return secret, json.Unmarshal(text, secret)
}
