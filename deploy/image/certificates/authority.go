package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Certificates begin this much in the past, because the clocks of nodes differ.
const clockSkew = 5 * time.Minute

// Authority is a certificate that signs others, with its key. A run of the program has one or two.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Request describes the certificate of one role.
type Request struct {
	secret string
	uses   []x509.ExtKeyUsage
	names  []string // DNS names, IP addresses, URIs
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

func newAuthority(now time.Time, lifetime time.Duration) (*Authority, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// Two authorities of one name could not be told apart in an error message.
		Subject:               pkix.Name{CommonName: "Sluice " + now.UTC().Format("2006-01-02T15:04:05Z")},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(lifetime),
		IsCA:                  true,
		MaxPathLenZero:        true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return sign(template, nil)
}

// issue makes a certificate that ends no later than the authority.
func (a *Authority) issue(request Request, now time.Time, lifetime time.Duration) (*Authority, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: request.names[0]},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(lifetime),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           request.uses,
	}
	if template.NotAfter.After(a.certificate.NotAfter) {
		template.NotAfter = a.certificate.NotAfter
	}
	if err := setNames(template, request.names); err != nil {
		return nil, err
	}
	return sign(template, a)
}

func setNames(template *x509.Certificate, names []string) error {
	for _, name := range names {
		if strings.Contains(name, "://") {
			uri, err := url.Parse(name)
			if err != nil {
				return err
			}
			template.URIs = append(template.URIs, uri)
		} else if address := net.ParseIP(name); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return nil
}

// sign makes a key and a certificate; without an authority, the certificate signs itself.
func sign(template *x509.Certificate, authority *Authority) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	parent, signer := template, key
	if authority != nil {
		parent, signer = authority.certificate, authority.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &Authority{certificate, key}, err
}

func certificatePEM(certificates ...*x509.Certificate) []byte {
	var text []byte
	for _, each := range certificates {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: each.Raw})...)
	}
	return text
}

func (a *Authority) keyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var found []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		found = append(found, certificate)
	}
	return found, nil
}

// parsePair returns nil if both texts are empty.
func parsePair(certificateText, keyText []byte) (*Authority, error) {
	if len(certificateText) == 0 && len(keyText) == 0 {
		return nil, nil
	}
	certificates, err := parseCertificates(certificateText)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(keyText)
	if len(certificates) == 0 || block == nil {
		return nil, errors.New("it has a certificate or a key that is not PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(certificates[0].PublicKey) {
		return nil, errors.New("its key is not the ECDSA key of its certificate")
	}
	return &Authority{certificates[0], key}, nil
}

// old is true in the last third of the certificate's life.
func old(certificate *x509.Certificate, now time.Time) bool {
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	return now.After(certificate.NotAfter.Add(-life / 3))
}

// reasonToIssue returns why the role needs a new certificate, or "".
func (a *Authority) reasonToIssue(request Request, data map[string][]byte, now time.Time) string {
	pair, err := parsePair(data["tls.crt"], data["tls.key"])
	if err != nil {
		return err.Error()
	}
	if pair == nil {
		return "there was none"
	}
	certificate := pair.certificate
	wanted := &x509.Certificate{}
	if err := setNames(wanted, request.names); err != nil {
		return err.Error()
	}
	switch {
	case certificate.CheckSignatureFrom(a.certificate) != nil:
		return "the authority is new"
	case old(certificate, now):
		return fmt.Sprintf("the last one ends at %s", certificate.NotAfter.UTC().Format(time.RFC3339))
	case fmt.Sprint(certificate.DNSNames, certificate.IPAddresses, certificate.URIs) !=
		fmt.Sprint(wanted.DNSNames, wanted.IPAddresses, wanted.URIs):
		return "the names have changed"
	case !slices.Equal(certificate.ExtKeyUsage, request.uses):
		return "the uses have changed"
	}
	return ""
}

// Limits are the durations that a run follows.
type Limits struct {
	certificate time.Duration // life of a certificate
	authority   time.Duration // life of an authority
	settle      time.Duration // until all programs have read a new authority
}

// advance moves the authorities one step, and returns the one that signs. An authority follows another in two runs: the
// first makes it known to all programs, and a later run, after `settle`, signs with it. The old one stays known until it
// ends, so certificates of both are valid meanwhile.
func advance(data map[string][]byte, now time.Time, limits Limits) (*Authority, map[string][]byte, error) {
	current, err := parsePair(data["tls.crt"], data["tls.key"])
	if err != nil {
		return nil, nil, err
	}
	next, err := parsePair(data["next.crt"], data["next.key"])
	if err != nil {
		return nil, nil, fmt.Errorf("next: %w", err)
	}
	known, err := parseCertificates(data["ca.crt"])
	if err != nil {
		return nil, nil, fmt.Errorf("ca.crt: %w", err)
	}
	if next != nil && now.Sub(next.certificate.NotBefore) >= limits.settle {
		current, next = next, nil
	}
	if current == nil || now.After(current.certificate.NotAfter) {
		if current, err = newAuthority(now, limits.authority); err != nil {
			return nil, nil, err
		}
		known = append(known, current.certificate)
	} else if next == nil && old(current.certificate, now) {
		if next, err = newAuthority(now, limits.authority); err != nil {
			return nil, nil, err
		}
		known = append(known, next.certificate)
	}
	known = slices.DeleteFunc(known, func(each *x509.Certificate) bool { return now.After(each.NotAfter) })
	made, err := toData(current)
	if err != nil {
		return nil, nil, err
	}
	made["ca.crt"] = certificatePEM(known...)
	made["next.crt"], made["next.key"] = []byte{}, []byte{}
	if next != nil {
		pair, err := toData(next)
		if err != nil {
			return nil, nil, err
		}
		made["next.crt"], made["next.key"] = pair["tls.crt"], pair["tls.key"]
	}
	return current, made, nil
}

func toData(pair *Authority) (map[string][]byte, error) {
	key, err := pair.keyPEM()
	return map[string][]byte{"tls.crt": certificatePEM(pair.certificate), "tls.key": key}, err
}

// differs is true if a value of `made` is not in `data`.
func differs(data, made map[string][]byte) bool {
	for key, value := range made {
		if !bytes.Equal(data[key], value) {
			return true
		}
	}
	return false
}
