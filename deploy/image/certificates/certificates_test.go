package main

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	day     = 24 * time.Hour
	workers = "spiffe://sluice/worker"
)

// cluster is an API server with a namespace "here" of Secrets.
type cluster struct {
	mutex    sync.Mutex
	secrets  map[string]map[string][]byte
	versions map[string]int
	writes   int
	before   func() // runs before a write
}

func (c *cluster) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	refuse := func(code int, message string) {
		response.WriteHeader(code)
		_ = json.NewEncoder(response).Encode(map[string]string{"message": message})
	}
	if request.Header.Get("Authorization") != "Bearer token-of-the-pod" {
		refuse(http.StatusUnauthorized, "Unauthorized")
		return
	}
	if c.before != nil && request.Method == http.MethodPatch {
		c.before()
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	name, found := strings.CutPrefix(request.URL.Path, "/api/v1/namespaces/here/secrets/")
	data := c.secrets[name]
	if !found || data == nil {
		refuse(http.StatusNotFound, fmt.Sprintf("secrets %q not found", name))
		return
	}
	if request.Method == http.MethodPatch {
		var patch Secret
		if err := json.NewDecoder(request.Body).Decode(&patch); err != nil {
			refuse(http.StatusBadRequest, err.Error())
			return
		}
		if request.Header.Get("Content-Type") != "application/merge-patch+json" || patch.Metadata.ResourceVersion != fmt.Sprint(c.versions[name]) {
			refuse(http.StatusConflict, "the object has been modified")
			return
		}
		maps.Copy(data, patch.Data)
		c.versions[name]++
		c.writes++
	}
	_ = json.NewEncoder(response).Encode(map[string]any{
		"metadata": map[string]string{"resourceVersion": fmt.Sprint(c.versions[name])}, "data": data,
	})
}

func newCluster(t *testing.T) (*cluster, *Run) {
	t.Helper()
	c := &cluster{secrets: map[string]map[string][]byte{}, versions: map[string]int{}}
	for _, name := range []string{"authority", "worker", "client"} {
		c.secrets[name] = map[string][]byte{}
	}
	server := httptest.NewTLSServer(c)
	t.Cleanup(server.Close)
	account := t.TempDir()
	for name, text := range map[string]string{
		"token": "token-of-the-pod\n", "namespace": "here",
		"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
	} {
		if err := os.WriteFile(filepath.Join(account, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run, err := parse([]string{
		"--server=" + server.URL, "--account=" + account, "--authority=authority", "--lifetime=720h", "--authority-lifetime=8760h",
		"--certificate=worker:server:" + workers, "--certificate=client:client:me.example,10.0.0.1",
	})
	if err != nil {
		t.Fatal(err)
	}
	run.log = io.Discard
	return c, run
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func certificates(t *testing.T, text []byte) []*x509.Certificate {
	t.Helper()
	found, err := parseCertificates(text)
	must(t, err)
	return found
}

func (c *cluster) certificate(t *testing.T, secret string) *x509.Certificate {
	t.Helper()
	pair, err := parsePair(c.secrets[secret]["tls.crt"], c.secrets[secret]["tls.key"])
	must(t, err)
	return pair.certificate
}

// verify returns what a program with the authorities of one Secret says of the certificate of another one.
func (c *cluster) verify(t *testing.T, reader map[string][]byte, certificate *x509.Certificate, use x509.ExtKeyUsage, now time.Time) error {
	t.Helper()
	pool := x509.NewCertPool()
	for _, each := range certificates(t, reader["ca.crt"]) {
		pool.AddCert(each)
	}
	_, err := certificate.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{use}, CurrentTime: now})
	return err
}

func TestFirstRunMakesAnAuthorityAndACertificateOfEachRole(t *testing.T) {
	c, run := newCluster(t)
	now := time.Now()
	must(t, run.do(now))
	worker, client := c.certificate(t, "worker"), c.certificate(t, "client")
	must(t, c.verify(t, c.secrets["client"], worker, x509.ExtKeyUsageServerAuth, now))
	must(t, c.verify(t, c.secrets["worker"], client, x509.ExtKeyUsageClientAuth, now))
	if c.verify(t, c.secrets["client"], client, x509.ExtKeyUsageServerAuth, now) == nil {
		t.Error("a client may pretend to be a server")
	}
	if c.verify(t, c.secrets["worker"], worker, x509.ExtKeyUsageClientAuth, now) == nil {
		t.Error("a worker may call others")
	}
	if len(worker.URIs) != 1 || worker.URIs[0].String() != workers || client.VerifyHostname("me.example") != nil || client.VerifyHostname("10.0.0.1") != nil {
		t.Errorf("wrong names: %v %v %v", worker.URIs, client.DNSNames, client.IPAddresses)
	}
	for _, role := range []string{"worker", "client"} {
		if len(c.secrets[role]) != 3 {
			t.Errorf("%s has more than its certificate, its key, and the authorities", role)
		}
	}
}

func TestRunsOfTheSameDayChangeNothing(t *testing.T) {
	c, run := newCluster(t)
	must(t, run.do(time.Now()))
	writes := c.writes
	must(t, run.do(time.Now().Add(time.Hour)))
	if writes != 3 || c.writes != writes {
		t.Errorf("%d writes, then %d", writes, c.writes-writes)
	}
}

func TestACertificateIsReplacedInTheLastThirdOfItsLife(t *testing.T) {
	c, run := newCluster(t)
	now := time.Now()
	must(t, run.do(now))
	before := c.certificate(t, "worker")
	must(t, run.do(now.Add(19*day)))
	if !c.certificate(t, "worker").Equal(before) {
		t.Error("replaced too early")
	}
	must(t, run.do(now.Add(21*day)))
	if c.certificate(t, "worker").Equal(before) {
		t.Error("not replaced")
	}
}

func TestRenewAndOtherNamesAndADamagedKeyReplaceACertificate(t *testing.T) {
	c, run := newCluster(t)
	now := time.Now()
	must(t, run.do(now))
	authority := c.certificate(t, "authority")
	for what, change := range map[string]func(*Run){
		"renew":   func(r *Run) { r.renew = true },
		"names":   func(r *Run) { r.requests[0].names = append(r.requests[0].names, "localhost") },
		"use":     func(r *Run) { r.requests[0].uses = uses["both"] },
		"damaged": func(*Run) { c.secrets["worker"]["tls.key"] = c.secrets["client"]["tls.key"] },
	} {
		before := certificates(t, c.secrets["worker"]["tls.crt"])[0]
		other := *run
		other.requests = append([]Request{}, run.requests...)
		change(&other)
		must(t, other.do(now))
		if c.certificate(t, "worker").Equal(before) {
			t.Errorf("%s: not replaced", what)
		}
		must(t, run.do(now)) // the former names again
	}
	if !c.certificate(t, "authority").Equal(authority) {
		t.Error("the authority has changed")
	}
}

// A program reads its Secret late, so at each time programs of two consecutive runs must accept each other.
func TestTheAuthorityFollowsAnotherAndNoProgramMeetsAStranger(t *testing.T) {
	c, run := newCluster(t)
	start := time.Now()
	must(t, run.do(start))
	authorities := map[string]bool{}
	before := map[string]map[string][]byte{"worker": maps.Clone(c.secrets["worker"]), "client": maps.Clone(c.secrets["client"])}
	for number := range 3 * 365 {
		now := start.Add(time.Duration(number+1) * day)
		must(t, run.do(now))
		authorities[c.certificate(t, "worker").Issuer.CommonName] = true
		for _, readers := range []map[string]map[string][]byte{before, c.secrets} {
			for _, servers := range []map[string]map[string][]byte{before, c.secrets} {
				worker := certificates(t, servers["worker"]["tls.crt"])[0]
				if err := c.verify(t, readers["client"], worker, x509.ExtKeyUsageServerAuth, now); err != nil {
					t.Fatalf("day %d: %v", number, err)
				}
			}
		}
		if known := len(certificates(t, c.secrets["client"]["ca.crt"])); known > 2 {
			t.Fatalf("day %d: %d authorities are known", number, known)
		}
		before = map[string]map[string][]byte{"worker": maps.Clone(c.secrets["worker"]), "client": maps.Clone(c.secrets["client"])}
	}
	if len(authorities) < 4 {
		t.Errorf("%d authorities in three years", len(authorities))
	}
}

func TestANewAuthorityDoesNotSignBeforeProgramsHaveReadIt(t *testing.T) {
	c, run := newCluster(t)
	start := time.Now()
	must(t, run.do(start))
	first := c.certificate(t, "authority")
	for _, hours := range []time.Duration{0, 1, 11, 13} {
		must(t, run.do(start.Add(250*day+hours*time.Hour)))
		if signs := c.certificate(t, "authority").Equal(first); signs != (hours < 12) {
			t.Errorf("after %d hours: the first authority signs: %v", hours, signs)
		}
	}
}

func TestAnEmptiedAuthorityIsReplacedWithAllItsCertificates(t *testing.T) {
	c, run := newCluster(t)
	now := time.Now()
	must(t, run.do(now))
	c.secrets["authority"] = map[string][]byte{}
	must(t, run.do(now))
	for _, role := range []string{"worker", "client"} {
		if known := certificates(t, c.secrets[role]["ca.crt"]); len(known) != 1 || !known[0].Equal(c.certificate(t, "authority")) {
			t.Errorf("%s trusts the last authority", role)
		}
	}
	must(t, c.verify(t, c.secrets["client"], c.certificate(t, "worker"), x509.ExtKeyUsageServerAuth, now))
	must(t, c.verify(t, c.secrets["worker"], c.certificate(t, "client"), x509.ExtKeyUsageClientAuth, now))
}

func TestARunAfterAFailureBetweenTwoWritesRepairs(t *testing.T) {
	c, run := newCluster(t)
	delete(c.secrets, "client")
	err := run.do(time.Now())
	if err == nil || !strings.Contains(err.Error(), `secrets "client" not found`) {
		t.Fatalf("%v", err)
	}
	c.secrets["client"] = map[string][]byte{}
	must(t, run.do(time.Now()))
	must(t, c.verify(t, c.secrets["worker"], c.certificate(t, "client"), x509.ExtKeyUsageClientAuth, time.Now()))
}

func TestTwoRunsAtOnceDoNotOverwriteEachOther(t *testing.T) {
	c, run := newCluster(t)
	c.before = func() {
		c.before = nil
		must(t, run.do(time.Now()))
	}
	if err := run.do(time.Now()); err == nil || !strings.Contains(err.Error(), "409") {
		t.Fatalf("%v", err)
	}
	must(t, c.verify(t, c.secrets["worker"], c.certificate(t, "client"), x509.ExtKeyUsageClientAuth, time.Now()))
}

func TestADamagedAuthorityIsNotReplaced(t *testing.T) {
	c, run := newCluster(t)
	must(t, run.do(time.Now()))
	damaged := []byte("not PEM")
	c.secrets["authority"]["tls.key"] = damaged
	err := run.do(time.Now())
	if err == nil || !strings.Contains(err.Error(), "Secret authority") || !bytes.Equal(c.secrets["authority"]["tls.key"], damaged) {
		t.Fatalf("%v", err)
	}
}

func TestCommandLinesThatAreRefused(t *testing.T) {
	for _, arguments := range []string{
		"", "--authority=a", "--certificate=b:server:x", "--authority=a --certificate=b:server", "--authority=a --certificate=b:any:x",
		"--authority=a --certificate=b:server:x,", "--authority=a --certificate=b:server:x y",
		"--authority=a --certificate=b:server:x --lifetime=720h --authority-lifetime=1440h",
	} {
		if _, err := parse(strings.Fields(arguments + " --server=https://nowhere")); err == nil {
			t.Errorf("%q is accepted", arguments)
		}
	}
}
