// sluice-certificates makes a private certificate authority and the certificates of Sluice's programs, and keeps them in
// Secrets, which must exist. Each run replaces the certificates in the last third of their life, and the authority in two
// steps, so no program ever meets a certificate that it cannot verify. Run it once a day: deploy/components/mtls.
package main

import (
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

var uses = map[string][]x509.ExtKeyUsage{
	"client": {x509.ExtKeyUsageClientAuth},
	"server": {x509.ExtKeyUsageServerAuth},
	"both":   {x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
}

func parseRequest(text string) (Request, error) {
	parts := strings.SplitN(text, ":", 3)
	if len(parts) != 3 || parts[0] == "" || uses[parts[1]] == nil {
		return Request{}, errors.New("it must be SECRET:USE:NAME,NAME, and USE one of client, server, both")
	}
	names := strings.Split(parts[2], ",")
	for _, name := range names {
		if name == "" {
			return Request{}, errors.New("a name is empty")
		}
	}
	return Request{parts[0], uses[parts[1]], names}, nil
}

// Run is one run of the program.
type Run struct {
	secrets   *Secrets
	authority string // Secret of the authority
	requests  []Request
	limits    Limits
	renew     bool // replace all certificates
	log       io.Writer
}

func (r *Run) do(now time.Time) error {
	kept, err := r.secrets.get(r.authority)
	if err != nil {
		return err
	}
	authority, made, err := advance(kept.Data, now, r.limits)
	if err != nil {
		return fmt.Errorf("Secret %s: %w; empty it for a new authority", r.authority, err)
	}
	// Store the authority before its certificates: a run that fails between the two is repaired by the next one.
	if differs(kept.Data, made) {
		if err := r.secrets.write(r.authority, kept, made); err != nil {
			return err
		}
		fmt.Fprintf(r.log, "%s: authority %s until %s\n", r.authority, authority.certificate.Subject.CommonName,
			authority.certificate.NotAfter.UTC().Format(time.RFC3339))
	}
	for _, request := range r.requests {
		if err := r.keep(authority, request, made["ca.crt"], now); err != nil {
			return err
		}
	}
	return nil
}

// keep writes the Secret of one role if its certificate or the known authorities must change.
func (r *Run) keep(authority *Authority, request Request, known []byte, now time.Time) error {
	kept, err := r.secrets.get(request.secret)
	if err != nil {
		return err
	}
	made := map[string][]byte{"ca.crt": known}
	reason := authority.reasonToIssue(request, kept.Data, now)
	if reason == "" && r.renew {
		reason = "--renew"
	}
	if reason != "" {
		pair, err := authority.issue(request, now, r.limits.certificate)
		if err != nil {
			return err
		}
		data, err := toData(pair)
		if err != nil {
			return err
		}
		made["tls.crt"], made["tls.key"] = data["tls.crt"], data["tls.key"]
		reason = fmt.Sprintf("new certificate until %s: %s", pair.certificate.NotAfter.UTC().Format(time.RFC3339), reason)
	} else {
		reason = "the certificate stays"
	}
	if differs(kept.Data, made) {
		if err := r.secrets.write(request.secret, kept, made); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.log, "%s: %s\n", request.secret, reason)
	return nil
}

func parse(arguments []string) (*Run, error) {
	run := &Run{log: os.Stdout}
	flags := flag.NewFlagSet("sluice-certificates", flag.ContinueOnError)
	const help = "`SECRET:USE:NAME,NAME` of each role; USE is client, server or both, NAME a DNS name, an IP address or a URI"
	flags.Func("certificate", help, func(text string) error {
		request, err := parseRequest(text)
		run.requests = append(run.requests, request)
		return err
	})
	flags.StringVar(&run.authority, "authority", "", "`Secret` of the authority, which no program needs")
	flags.DurationVar(&run.limits.certificate, "lifetime", 30*24*time.Hour, "life of a certificate")
	flags.DurationVar(&run.limits.authority, "authority-lifetime", 5*365*24*time.Hour, "life of an authority")
	flags.DurationVar(&run.limits.settle, "settle", 12*time.Hour, "delay until a new authority signs, for programs to read it")
	flags.BoolVar(&run.renew, "renew", false, "replace all certificates, also young ones")
	server := flags.String("server", "", "`URL` of the API server; default: the cluster's")
	account := flags.String("account", "/var/run/secrets/kubernetes.io/serviceaccount", "`folder` of the service account")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if run.authority == "" || len(run.requests) == 0 || flags.NArg() > 0 {
		return nil, errors.New("--authority and --certificate are required, and nothing else")
	}
	if run.limits.certificate <= 0 || run.limits.authority < 3*run.limits.certificate {
		return nil, errors.New("--authority-lifetime must be at least three times --lifetime")
	}
	var err error
	if *server == "" {
		if *server, err = serverOfCluster(); err != nil {
			return nil, err
		}
	}
	run.secrets, err = openSecrets(*server, *account)
	return run, err
}

func main() {
	run, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "sluice-certificates: %v\n", err)
		os.Exit(2)
	}
	if err := run.do(time.Now()); err != nil {
		fmt.Fprintf(os.Stderr, "sluice-certificates: %v\n", err)
		os.Exit(1)
	}
}
